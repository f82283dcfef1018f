"""Session headers. Upstream: packages/session/session/src/session-header.ts."""

import posixpath
from collections.abc import Mapping
from typing import Final, Literal, NewType, NoReturn

import msgspec

from dsh_brand import JsonValue
from dsh_session.errors import FormatVersionError, InvalidHeaderError
from dsh_session.integers import as_integer, is_natural

SessionId = NewType("SessionId", str)
"""Names one session; non-empty, otherwise free text."""

SESSION_FORMAT_VERSION: Final = 4
"""The one format that is written and read natively."""


class SessionHeader(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What is known about a session before its first event; it is not part of the log."""

    id: SessionId
    created_at: int
    """Unix epoch milliseconds."""
    is_seeded: bool = False
    """A fork prefix exists; its length is `Session.inherited_event_count`."""
    version: int = SESSION_FORMAT_VERSION
    cwd: str | None = None
    """Absolute path of the workspace."""
    parent_session: SessionId | None = None
    origin: Literal["subagent"] | None = None
    delegation_depth: int | None = None
    agent_preset: str | None = None

    def __post_init__(self) -> None:
        if self.version != SESSION_FORMAT_VERSION or type(self.version) is not int:
            _refuse("version", self.version, f"{SESSION_FORMAT_VERSION}")
        _check_text("id", self.id)
        if not is_natural(self.created_at):
            _refuse("createdAt", self.created_at, "a non-negative integer of milliseconds")
        if type(self.is_seeded) is not bool:
            _refuse("isSeeded", self.is_seeded, "a boolean")
        self._check_optional()

    def _check_optional(self) -> None:
        if self.cwd is not None and not (type(self.cwd) is str and is_absolute(self.cwd)):
            _refuse("cwd", self.cwd, "an absolute path")
        if self.parent_session is not None:
            _check_text("parentSession", self.parent_session)
        if self.origin not in (None, "subagent"):
            _refuse("origin", self.origin, "'subagent'")
        if self.delegation_depth is not None and not is_natural(self.delegation_depth):
            _refuse("delegationDepth", self.delegation_depth, "a non-negative integer")
        if self.agent_preset is not None and type(self.agent_preset) is not str:
            _refuse("agentPreset", self.agent_preset, "a string")


def is_absolute(path: str) -> bool:
    """True for an absolute path of any system: a log may come from another one."""
    drive = len(path) > 2 and path[0].isalpha() and path[1] == ":" and path[2] in "\\/"
    return posixpath.isabs(path) or drive or path.startswith("\\\\")


def header_to_json(header: SessionHeader) -> dict[str, JsonValue]:
    """The header as stored, in the order of the storage form, without its line's `type`."""
    out: dict[str, JsonValue] = {
        "version": header.version,
        "id": header.id,
        "createdAt": header.created_at,
    }
    optional: dict[str, JsonValue] = {
        "cwd": header.cwd,
        "parentSession": header.parent_session,
        "isSeeded": header.is_seeded,
        "origin": header.origin,
        "delegationDepth": header.delegation_depth or 0,
        "agentPreset": header.agent_preset,
    }
    out.update((key, value) for key, value in optional.items() if value is not None)
    return out


_KEYS: Final = (
    *("version", "id", "createdAt", "cwd", "parentSession"),
    *("isSeeded", "origin", "delegationDepth", "agentPreset"),
)


def header_from_json(value: object) -> SessionHeader:
    """Read a stored header, without its line's `type`.

    Raises:
        FormatVersionError: Another format; looked at before anything else.
        InvalidHeaderError: Not a header.
    """
    if not isinstance(value, Mapping):
        raise InvalidHeaderError(f"a session header is an object, not {type(value).__name__}")
    version = as_integer(value.get("version"))
    if version is None or version < 0:
        _refuse("version", value.get("version"), "a number")
    if version != SESSION_FORMAT_VERSION:
        raise FormatVersionError(version, SESSION_FORMAT_VERSION)
    unknown = sorted(set(map(str, value)).difference(_KEYS))
    if unknown:
        raise InvalidHeaderError(f"a session header has no keys {unknown}; known: {list(_KEYS)}")
    for key in ("id", "createdAt", "isSeeded"):
        if key not in value:
            raise InvalidHeaderError(f"a session header needs {key!r}")
    if any(item is None for item in value.values()):
        raise InvalidHeaderError("an absent header value is left out, never null")
    try:
        return msgspec.convert({key: _whole(item) for key, item in value.items()}, SessionHeader)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, InvalidHeaderError):
            raise error.__cause__ from None
        raise InvalidHeaderError(f"session header: {error}", error) from None


def _whole(value: object) -> object:
    number = as_integer(value) if isinstance(value, float) else None
    return value if number is None else number


def _check_text(key: str, value: object) -> None:
    if type(value) is not str or not value:
        _refuse(key, value, "a non-empty string")


def _refuse(key: str, value: object, wanted: str) -> NoReturn:
    raise InvalidHeaderError(f"session header: {key} must be {wanted}, not {value!r}")
