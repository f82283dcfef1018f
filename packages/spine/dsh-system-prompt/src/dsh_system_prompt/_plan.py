"""What is registered for one viewer, in the order of its use, and the last assembly made of it."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

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
    """An assembly, and all that it was made of."""

    texts: list[str]
    facts: list[str]
    contributions: list[ToolsContribution]
    variables: Mapping[str, str | None]
    assembly: PromptAssembly
    """Before listeners: with all sections."""
    final: PromptAssembly
    """What it is if no listener takes part."""


class Plan:
    """Sections, contexts and tools of one viewer.

    Their providers run for every assembly; if they say what they said the last time, the last
    assembly is given again.
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
        self._last: Made | None = None

    def make(self, context: AssemblyContext, variables: Mapping[str, str | None]) -> Made:
        """Ask all providers."""
        texts = [text_of(each.provider, context) for each in self._sections]
        contributions = [provider(context) for provider in self._tools]
        facts = [text_of(each.provider, context) for each in self._contexts]
        last = self._last
        if (
            last is None
            or last.texts != texts
            or last.facts != facts
            or last.variables != variables
            or not _same(last.contributions, contributions)
        ):
            assembly = PromptAssembly(
                sections=tuple(map(_section, self._sections, texts)),
                contexts=tuple(map(_context, self._contexts, facts)),
                tools=self._ordered(contributions),
                variables=MappingProxyType(variables),
                section_owners=self._owners,
                tool_owners=MappingProxyType(
                    {name: owner for each in contributions for name, owner in each.owners.items()}
                ),
            )
            final = self.completed(assembly, texts)
            last = self._last = Made(texts, facts, contributions, variables, assembly, final)
        return last

    def completed(self, assembly: PromptAssembly, texts: Sequence[str]) -> PromptAssembly:
        """`assembly` with the one section that is the whole prompt, if there is one."""
        if self._complete is None:
            return assembly
        sole = _section(self._complete, texts[self._sections.index(self._complete)])
        return msgspec.structs.replace(assembly, sections=(sole,))

    def _ordered(self, contributions: Sequence[ToolsContribution]) -> tuple[ToolSchema, ...]:
        schemas = [schema for each in contributions for schema in each.schemas]
        known: set[str] = set()
        for each in contributions:
            names = each.known_names
            known.update([schema.name for schema in each.schemas] if names is None else names)
        return order_tools(schemas, self._tool_order, known)


def text_of(provider: TextProvider, context: AssemblyContext) -> str:
    """What a provider says; nothing counts as empty."""
    return (provider if isinstance(provider, str) else provider(context)) or ""


def _same(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


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
