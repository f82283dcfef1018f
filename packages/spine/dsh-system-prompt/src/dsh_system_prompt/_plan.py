"""What is registered for one viewer, in the order of its use, and the last assembly made of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec

from dsh_brand import utf16_key
from dsh_llm import ToolSchema

from .errors import CompletePromptError
from .tool_order import order_tools
from .types import (
    AssemblyContext,
    PromptAssembly,
    PromptContext,
    PromptSection,
    TextProvider,
    ToolsContribution,
    ToolsProvider,
)

K = TypeVar("K")
V = TypeVar("V")


class Section(msgspec.Struct, frozen=True):
    """A registered section."""

    name: str
    order: float
    provider: TextProvider
    complete: bool
    interpolate: bool
    owner: str


class ContextEntry(msgspec.Struct, frozen=True):
    """A registered fact of the moment."""

    name: str
    order: float
    provider: TextProvider


class Made(msgspec.Struct, frozen=True):
    """An assembly."""

    texts: list[str]
    """Of all sections."""
    assembly: PromptAssembly
    """Before listeners: with all sections."""
    final: PromptAssembly
    """What it is if no listener takes part."""


class _Last(Generic[K, V]):
    """What was made last, and of what; the same again is not made again."""

    __slots__ = ("_key", "_make", "_value")

    def __init__(self, make: Callable[[K], V]) -> None:
        self._make = make
        self._key: K | None = None
        self._value: V

    def of(self, key: K) -> V:
        if self._key != key:
            self._value = self._make(key)
            self._key = key
        return self._value


_Offer = tuple[tuple[ToolSchema, ...], Mapping[str, str]]
"""Tools in their order, and the plugin that registered each."""

_Parts = tuple[
    list[str],
    tuple[PromptSection, ...],
    tuple[PromptContext, ...],
    _Offer,
    Mapping[str, str | None],
]


class Plan:
    """Sections, contexts and tools of a viewer, or of all viewers that have none of their own.

    Their providers run for every assembly. Parts of which they say what they said the last time are
    the same objects again, and so is the whole if all of them do.
    """

    def __init__(
        self,
        sections: Iterable[Section],
        contexts: Iterable[ContextEntry],
        tools: Sequence[ToolsProvider],
        tool_order: Sequence[str] | None,
        *,
        silent: bool,
    ) -> None:
        """Sort what is registered.

        Args:
            sections: In any order.
            contexts: In any order.
            tools: Who contributes tools.
            tool_order: As configured.
            silent: No facts are given; nobody is asked for them.

        Raises:
            CompletePromptError: Two sections each are the whole prompt.
        """
        self._sections = sorted(sections, key=_position)
        self._contexts = [] if silent else sorted(contexts, key=_position)
        self.silent = silent
        self._tools = tuple(tools)
        self._tool_order = tool_order
        self._complete = _the_complete(self._sections)
        self._owners = MappingProxyType({each.name: each.owner for each in self._sections})
        self._shown = _Last(self._show)
        self._stated = _Last(self._state)
        self._offered = _Last(self._offer)
        self._made = _Last(self._make)

    def make(self, context: AssemblyContext, variables: Mapping[str, str | None]) -> Made:
        """Ask all providers."""
        texts = [text_of(each.provider, context) for each in self._sections]
        contributions = [provider(context) for provider in self._tools]
        facts = [text_of(each.provider, context) for each in self._contexts]
        sections, contexts = self._shown.of(texts), self._stated.of(facts)
        return self._made.of(
            (texts, sections, contexts, self._offered.of(contributions), variables)
        )

    def _show(self, texts: list[str]) -> tuple[PromptSection, ...]:
        return tuple(map(_section, self._sections, texts))

    def _state(self, facts: list[str]) -> tuple[PromptContext, ...]:
        return tuple(map(_context, self._contexts, facts))

    def _offer(self, contributions: list[ToolsContribution]) -> _Offer:
        schemas = [schema for each in contributions for schema in each.schemas]
        owners = {name: owner for each in contributions for name, owner in each.owners.items()}
        known: set[str] = set()
        for each in contributions:
            names = each.known_names
            known.update([schema.name for schema in each.schemas] if names is None else names)
        return order_tools(schemas, self._tool_order, known), MappingProxyType(owners)

    def _make(self, parts: _Parts) -> Made:
        texts, sections, contexts, (tools, owners), variables = parts
        assembly = PromptAssembly(
            sections=sections,
            contexts=contexts,
            tools=tools,
            variables=MappingProxyType(variables),
            section_owners=self._owners,
            tool_owners=owners,
        )
        return Made(texts, assembly, self.completed(assembly, texts))

    def completed(self, assembly: PromptAssembly, texts: Sequence[str]) -> PromptAssembly:
        """`assembly` with the one section that is the whole prompt, if there is one."""
        if self._complete is None:
            return assembly
        sole = _section(self._complete, texts[self._sections.index(self._complete)])
        return msgspec.structs.replace(assembly, sections=(sole,))


def text_of(provider: TextProvider, context: AssemblyContext) -> str:
    """What a provider says; nothing counts as empty."""
    return (provider if isinstance(provider, str) else provider(context)) or ""


def _the_complete(sections: Iterable[Section]) -> Section | None:
    complete = [section for section in sections if section.complete]
    if len(complete) > 1:
        names = ", ".join(repr(section.name) for section in complete)
        raise CompletePromptError(
            f"sections {names} each replace the whole prompt; only one may be visible"
        )
    return complete[0] if complete else None


def _section(entry: Section, text: str) -> PromptSection:
    return PromptSection(
        name=entry.name, order=entry.order, text=text, interpolate=entry.interpolate
    )


def _context(entry: ContextEntry, text: str) -> PromptContext:
    return PromptContext(name=entry.name, order=entry.order, text=text)


def _position(entry: Section | ContextEntry) -> tuple[float, bytes]:
    return entry.order, utf16_key(entry.name)
