"""The part of a request that providers cache, and what made it change.

A provider's cache holds as long as the request begins with the same bytes: the system prompt and
the tool schemas. Whatever changes one of them makes every later token new once.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from dsh_brand import encode
from dsh_llm import ToolSchema

from .interpolation import interpolate, variables_in
from .types import PromptAssembly

ChangeKind: TypeAlias = Literal["added", "removed", "changed", "moved"]


class PromptPrefix(msgspec.Struct, frozen=True, kw_only=True):
    """Sections and tools by name, as bytes, in the order of the request."""

    sections: Mapping[str, bytes]
    tools: Mapping[str, bytes]
    section_owners: Mapping[str, str] = msgspec.field(default_factory=dict)
    tool_owners: Mapping[str, str] = msgspec.field(default_factory=dict)
    section_variables: Mapping[str, Mapping[str, str | None]] = msgspec.field(default_factory=dict)
    """What the variables in each section stand for, by section name."""


class PrefixChange(msgspec.Struct, frozen=True, kw_only=True):
    """One reason why a prefix is not the one before."""

    what: Literal["section", "tool"]
    name: str
    change: ChangeKind
    """`moved`: the same bytes at another place."""
    owner: str | None = None
    """The plugin that registered it; `None` where that is not known."""
    variables: tuple[str, ...] = ()
    """For a changed section: its variables that have another value."""


def prefix_of(assembly: PromptAssembly) -> PromptPrefix:
    """The prefix that an assembly gives; empty sections are none.

    Raises:
        PromptVariableError: A variable of a section cannot be filled.
    """
    texts = {
        each.name: interpolate(each.text, assembly.variables, section=each.name)
        if each.interpolate
        else each.text
        for each in assembly.sections
    }
    return PromptPrefix(
        sections={name: _bytes(text) for name, text in texts.items() if text},
        tools=tool_bytes(assembly.tools),
        section_owners=assembly.section_owners,
        tool_owners=assembly.tool_owners,
        section_variables={
            each.name: {name: assembly.variables.get(name) for name in variables_in(each.text)}
            for each in assembly.sections
            if each.interpolate
        },
    )


def tool_bytes(tools: Iterable[ToolSchema]) -> dict[str, bytes]:
    """Each tool as it stands in a request header."""
    return {tool.name: encode(tool) for tool in tools}


def compare_prefixes(before: PromptPrefix, after: PromptPrefix) -> tuple[PrefixChange, ...]:
    """Everything by which `after` differs; nothing if its bytes are the same."""
    owners = {**before.section_owners, **after.section_owners}
    changes = [
        PrefixChange(
            what="section",
            name=name,
            change=change,
            owner=owners.get(name),
            variables=_changed_variables(before, after, name) if change == "changed" else (),
        )
        for name, change in _differences(before.sections, after.sections)
    ]
    owners = {**before.tool_owners, **after.tool_owners}
    changes += [
        PrefixChange(what="tool", name=name, change=change, owner=owners.get(name))
        for name, change in _differences(before.tools, after.tools)
    ]
    return tuple(changes)


def _differences(
    before: Mapping[str, bytes], after: Mapping[str, bytes]
) -> list[tuple[str, ChangeKind]]:
    found: list[tuple[str, ChangeKind]] = [
        (name, "removed") for name in before if name not in after
    ]
    for name, value in after.items():
        if name not in before:
            found.append((name, "added"))
        elif before[name] != value:
            found.append((name, "changed"))
    kept = [name for name in before if name in after]
    order = [name for name in after if name in before]
    found += [(new, "moved") for old, new in zip(kept, order, strict=True) if old != new]
    return found


def _changed_variables(before: PromptPrefix, after: PromptPrefix, name: str) -> tuple[str, ...]:
    old = before.section_variables.get(name, {})
    new = after.section_variables.get(name, {})
    return tuple(sorted(each for each in old.keys() & new.keys() if old[each] != new[each]))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
