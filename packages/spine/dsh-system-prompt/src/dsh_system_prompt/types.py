"""What an assembly is made of. Upstream: packages/prompt/system-prompt/src/types.ts."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import msgspec

from dsh_llm import AbortSignal, SnapshotSection, ToolSchema

from .interpolation import interpolate


class AssemblyContext(msgspec.Struct, frozen=True, kw_only=True):
    """For whom a prompt is assembled; providers are pure functions of it."""

    scope: object | None
    """Of the agent; `None` sees what is registered for everyone."""
    signal: AbortSignal | None = None
    agent: object | None = None
    """The agent itself, opaque to this package."""
    variables: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The values known so far; complete for sections, contexts and tools."""


TextProvider: TypeAlias = str | Callable[[AssemblyContext], str | None]
"""A fixed text, or a synchronous function; `None` counts as no text."""


class ToolsContribution(msgspec.Struct, frozen=True, kw_only=True):
    """Tool schemas of one provider."""

    schemas: Sequence[ToolSchema]
    known_names: Sequence[str] | None = None
    """All names it knows, hidden ones too; the schemas' names by default."""
    owners: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The plugin that registered each tool, by tool name."""


ToolsProvider: TypeAlias = Callable[[AssemblyContext], ToolsContribution]


class PromptSection(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the system prompt."""

    name: str
    order: float
    text: str
    interpolate: bool = True
    """Whether ``{{name}}`` in the text is a variable."""


class PromptContext(msgspec.Struct, frozen=True, kw_only=True):
    """A fact of the moment, given beside the prompt."""

    name: str
    order: float
    text: str


class PromptAssembly(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Everything a request says besides the conversation."""

    sections: tuple[PromptSection, ...] = ()
    contexts: tuple[PromptContext, ...] = ()
    tools: tuple[ToolSchema, ...] = ()
    variables: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    """By name; `None` for a registered one without a value."""
    section_owners: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The plugin that registered each section, by section name."""
    tool_owners: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The plugin that registered each tool, by tool name."""

    @cached_property
    def _rendered(self) -> str:
        # Kept, since an assembly serves until something in it changes.
        rendered = (
            interpolate(section.text, self.variables, section=section.name)
            if section.interpolate
            else section.text
            for section in self.sections
        )
        return "\n\n".join(text for text in rendered if text)


class RenderedContexts(msgspec.Struct, frozen=True, kw_only=True):
    """Contexts as one text, and its parts."""

    text: str
    sections: tuple[SnapshotSection, ...]
