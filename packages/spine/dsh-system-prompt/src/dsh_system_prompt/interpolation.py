"""``{{name}}`` in section texts: strict, in one pass, without escape.

Upstream: packages/prompt/system-prompt/src/interpolate.ts.
"""

import re
from collections.abc import Mapping
from typing import Final

from .errors import MalformedVariableError, MissingVariableError, UnknownVariableError

VARIABLE_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_PLACE: Final = re.compile(r"\{\{([a-z][a-z0-9_]*)\}\}")
_SHOWN: Final = 40


def interpolate(text: str, variables: Mapping[str, str | None], *, section: str) -> str:
    """Fill the variables of a section. Substituted text is not looked at again.

    Args:
        text: Of the section. ``{{`` without a later ``}}`` is plain text.
        variables: By name; `None` for a registered one without a value.
        section: Name of the section, for errors.

    Raises:
        UnknownVariableError: Nobody registered the name.
        MissingVariableError: It has no value.
        MalformedVariableError: The braces hold no name.
    """
    parts: list[str] = []
    position = 0
    while (opening := text.find("{{", position)) >= 0:
        closing = text.find("}}", opening + 2)
        if closing < 0:
            break
        name = text[opening + 2 : closing]
        if not VARIABLE_NAME.fullmatch(name):
            raise _malformed(text[opening : closing + 2], section)
        parts += (text[position:opening], _value(name, variables, section))
        position = closing + 2
    parts.append(text[position:])
    return "".join(parts)


def variables_in(text: str) -> frozenset[str]:
    """The names of all variables in the text of a section."""
    return frozenset(_PLACE.findall(text))


def _value(name: str, variables: Mapping[str, str | None], section: str) -> str:
    if name not in variables:
        known = ", ".join(sorted(variables)) or "none"
        raise UnknownVariableError(
            f"section {section!r} uses variable {name!r}, which nobody registered; known: {known}",
            section,
            name,
        )
    value = variables[name]
    if value is None:
        raise MissingVariableError(
            f"section {section!r} uses variable {name!r}, which has no value here; give it one or "
            "leave it out",
            section,
            name,
        )
    return value


def _malformed(found: str, section: str) -> MalformedVariableError:
    shown = found if len(found) <= _SHOWN else found[:_SHOWN] + "…"
    return MalformedVariableError(
        f"section {section!r} holds {shown!r}, which is no variable; write {{{{name}}}} in lower "
        "case without spaces, or register the section with interpolate=False",
        section,
    )
