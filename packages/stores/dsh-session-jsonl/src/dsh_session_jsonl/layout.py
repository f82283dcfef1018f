"""Where a session's log lies below the root. Upstream: packages/session/session-jsonl paths.

`<root>/<project>/<segment>/<file>`: the project stands for the workspace, the segment for the
session id, the file name for the format version and the encoding.
"""

import re
import struct
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

Compression = Literal["zstd", "none"]
"""How the logs of one root are encoded."""

LOCK_NAME: Final = "session.lock"
NO_CWD: Final = "_no-cwd"

_SLUG_LIMIT: Final = 251
_NAME_LIMIT: Final = 255
_SAFE: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
_SEPARATORS: Final = frozenset(b"/\\:")
_LOG_NAME: Final = re.compile(r"session(?:\.v([1-9][0-9]{0,8}))?\.jsonl(\.zstd)?", re.ASCII)


class LogName(NamedTuple):
    """What a log's file name says."""

    version: int
    compression: Compression


def project_segment(cwd: str | None) -> str:
    """Name the project folder of a workspace; different workspaces may share one."""
    if cwd is None:
        return NO_CWD
    slug = "".join(_slug_parts(cwd)).lstrip("-") or "root"
    return f"--{slug[:_SLUG_LIMIT]}--"


def is_project_segment(name: str) -> bool:
    """Whether a folder of that name may be the one of a workspace."""
    return name == NO_CWD or (name.startswith("--") and name.endswith("--"))


def session_segment(session_id: str) -> str:
    """Name the folder of a session; different ids never share one.

    Raises:
        ValueError: The id is empty, or too long for a folder name.
    """
    if not session_id:
        raise ValueError("a session id is a non-empty string, not ''")
    if session_id in {".", ".."}:
        return session_id.replace(".", "~002E")
    segment = "".join(chr(unit) if unit in _SAFE else _escape(unit) for unit in _units(session_id))
    if len(segment) > _NAME_LIMIT:
        raise ValueError(
            f"session id {session_id!r} needs a folder name of {len(segment)} characters, "
            f"more than {_NAME_LIMIT}: choose a shorter id"
        )
    return segment


def log_name(version: int, compression: Compression) -> str:
    """Name the log file of a format version."""
    generation = f".v{version}" if version else ""
    return f"session{generation}.jsonl{'.zstd' if compression == 'zstd' else ''}"


def parse_log_name(name: str) -> LogName | None:
    """Read a file name; `None` for a file that is no log."""
    match = _LOG_NAME.fullmatch(name)
    if match is None:
        return None
    return LogName(int(match[1] or 0), "zstd" if match[2] else "none")


def _slug_parts(cwd: str) -> Iterator[str]:
    in_separators = False
    for unit in _units(cwd):
        if unit in _SEPARATORS:
            if not in_separators:
                yield "-"
        else:
            yield chr(unit) if unit in _SAFE else _escape(unit)
        in_separators = unit in _SEPARATORS


def _units(text: str) -> tuple[int, ...]:
    """The UTF-16 code units, lone surrogates included."""
    raw = text.encode("utf-16-le", "surrogatepass")
    return struct.unpack(f"<{len(raw) // 2}H", raw)


def _escape(unit: int) -> str:
    return f"~{unit:04X}"
