"""From the bytes of a log to its valid events. Upstream: session-jsonl reader."""

from collections.abc import Sequence
from pathlib import Path

from typing_extensions import override

from dsh_brand import JsonValue, decode_json
from dsh_session import (
    SESSION_FORMAT_VERSION,
    FormatVersionError,
    InvalidEventError,
    InvalidHeaderError,
    InvalidLogError,
    SessionHeader,
    UnsupportedEventError,
    decode_stored_event,
    header_from_json,
)
from dsh_session_jsonl._lines import Damage, LineScan, text_flaw
from dsh_session_persistence import (
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
)


class LogScan(LineScan):
    """What one log of the native format holds."""

    @property
    def resumable(self) -> bool:
        """Whether the next `feed` may go on at `good_end`; else the file is read anew."""
        return self._damage is None and not self.unframed

    @property
    @override
    def _count(self) -> int:
        return len(self.rules)

    @override
    def _header_of(self, line: bytes) -> SessionHeader:
        return parse_header(line, self.path)

    @override
    def _take_rows(self, lines: Sequence[bytes]) -> int:
        before = self._count
        try:
            self.rules.decode(lines)
        except UnsupportedEventError as error:
            raise self._unsupported(error) from error
        except (InvalidEventError, InvalidLogError) as error:
            taken = self._count - before
            line = self._lines + taken + 1
            out_of_place = isinstance(error, InvalidEventError) and (
                error.event_type is None or error.seq != self._count
            )
            if not out_of_place:
                # A whole event in its place that breaks a rule: no crash writes that.
                raise self._corrupt(error.message, line=line, cause=error) from error
            self._damage = Damage(line, text_flaw(lines[taken]) or error.message, error)
            return taken
        return len(lines)

    @override
    def _types_in(self, line: bytes) -> frozenset[str | None]:
        try:
            return frozenset([decode_stored_event(line).type])
        except UnsupportedEventError as error:
            raise self._unsupported(error) from error
        except InvalidEventError as error:
            return frozenset([str(error.event_type)])

    @override
    def _finish(self) -> None:
        try:
            self.rules.finish()
        except InvalidLogError as error:
            raise self._corrupt(error.message, cause=error) from error

    def _unsupported(self, error: UnsupportedEventError) -> SessionFormatUnsupportedError:
        return SessionFormatUnsupportedError(error.message, str(self.path), cause=error)


def parse_header(line: bytes, path: Path) -> SessionHeader:
    """Read the header line of a log of the native format.

    Raises:
        SessionFormatUnsupportedError: A newer format.
        SessionPersistenceCorruptionError: It is no header of the format that the file's name says.
    """
    try:
        return header_from_json(header_value(line))
    except FormatVersionError as error:
        raise wrong_version(error.version, SESSION_FORMAT_VERSION, path) from error
    except (InvalidHeaderError, ValueError) as error:
        raise SessionPersistenceCorruptionError(
            f"no valid header: {error}", str(path), line=1, cause=error
        ) from error


def header_value(line: bytes) -> dict[str, JsonValue]:
    """The header's object without its line's `type`.

    Raises:
        ValueError: The line holds no such object.
    """
    try:
        value = decode_json(line)
    except ValueError as error:
        raise ValueError(text_flaw(line) or f"not JSON: {error}") from error
    if not isinstance(value, dict) or value.get("type") != "session":
        raise ValueError('the first line must be an object of type "session"')
    return {key: item for key, item in value.items() if key != "type"}


def wrong_version(
    found: int, expected: int, path: Path
) -> SessionFormatUnsupportedError | SessionPersistenceCorruptionError:
    """The error for a header whose version is not the one of the file's name."""
    if found > SESSION_FORMAT_VERSION:
        return SessionFormatUnsupportedError(
            f"session format {found} is not format {SESSION_FORMAT_VERSION}: "
            "a newer build wrote it: upgrade to read it",
            str(path),
        )
    return SessionPersistenceCorruptionError(
        f"the header says format {found}, the file's name says format {expected}",
        str(path),
        line=1,
    )
