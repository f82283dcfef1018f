"""From the bytes of a log of formats 0 to 3 to the events of the present format, in memory."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from typing_extensions import override

from dsh_brand import JsonValue, decode_json, encode_json, freeze_json
from dsh_session import (
    InvalidEventError,
    InvalidHeaderError,
    InvalidLogError,
    SessionHeader,
    UnsupportedEventError,
    encode_seq_ranges,
    header_from_json,
)
from dsh_session_jsonl._lines import Damage, LineScan
from dsh_session_jsonl._scan import header_value, wrong_version
from dsh_session_jsonl.formats import (
    BrokenRowError,
    CallPairs,
    CannotConvertError,
    Chain,
    Row,
    migrate_header,
    native_row,
    rows_of,
)
from dsh_session_jsonl.layout import LogName
from dsh_session_jsonl.stored_lines import MAX_LINE_BYTES
from dsh_session_persistence import (
    SessionFormatUnsupportedError,
    SessionPersistenceCorruptionError,
)


class OldLogScan(LineScan):
    """What one log of an older format holds, converted and checked like a native one."""

    def __init__(self, path: Path, name: LogName, *, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        super().__init__(path, name.compression, max_line_bytes=max_line_bytes)
        self.lines: list[bytes] = []
        """The rows of the present format, each with its line end."""

        self._pairs = CallPairs()
        self._version = name.version
        self._read = 0
        self._chain: Chain | None = None

    @property
    def unpaired(self) -> list[int]:
        """Seqs of the events at which calls and results do not pair."""
        return self._pairs.broken_at

    @property
    @override
    def _count(self) -> int:
        return self._read

    @override
    def _header_of(self, line: bytes) -> SessionHeader:
        value = old_header_value(line, self._version, self.path)
        header = _native_header(value, self._version, self.path)
        self._chain = Chain(self._version, value)
        return header

    @override
    def _take_rows(self, lines: Sequence[bytes]) -> int:
        for taken, line in enumerate(lines):
            self._lines += 1
            self._take_row(line)
            if self._damage is not None:
                return taken
        return len(lines)

    def _take_row(self, line: bytes) -> None:
        assert self._chain is not None, "the header comes first"
        try:
            rows = rows_of(_json(line), self._version)
        except CannotConvertError as error:
            raise self._unsupported(error) from error
        except BrokenRowError as error:
            if error.event_type is not None and error.seq == self._read:
                # A whole row in its place that breaks a rule: no crash writes that.
                raise self._corrupt(error.message, line=self._lines, cause=error) from error
            self._damage = Damage(self._lines, error.message, error)
            return
        if rows[0].seq != self._read:
            reason = f"expected seq {self._read}, found seq {rows[0].seq}"
            self._damage = Damage(self._lines, reason, None)
            return
        for row in rows:
            self._read += 1
            self._keep(self._converted(self._chain, row))

    @override
    def _types_in(self, line: bytes) -> frozenset[str | None]:
        try:
            return frozenset(row.type for row in rows_of(_json(line), self._version))
        except CannotConvertError as error:
            raise self._unsupported(error) from error
        except BrokenRowError as error:
            return frozenset([error.event_type])

    @override
    def _finish(self) -> None:
        assert self._chain is not None, "the header comes first"
        self._keep(self._converted(self._chain, None))
        try:
            self.rules.finish()
        except InvalidLogError as error:
            raise self._converted_wrong(error) from error

    def _converted(self, chain: Chain, row: Row | None) -> list[Row]:
        try:
            return chain.finish() if row is None else chain.push(row)
        except CannotConvertError as error:
            raise self._unsupported(error) from error
        except BrokenRowError as error:
            raise self._corrupt(error.message, line=self._lines, cause=error) from error

    def _keep(self, rows: Iterable[Row]) -> None:
        """Judge converted rows by the rules of native ones and take them."""
        for row in rows:
            try:
                line = _stored(row)
                self.rules.decode([line])
            except UnsupportedEventError as error:
                raise SessionFormatUnsupportedError(
                    error.message, str(self.path), cause=error
                ) from error
            except (InvalidLogError, InvalidEventError, ValueError) as error:
                raise self._converted_wrong(error, row) from error
            if len(line) > self.max_line_bytes:
                # Many short lines of an old log may become one.
                rule = f"it becomes a line of {len(line)} bytes"
                raise self._unsupported(CannotConvertError(rule, row.type, row.origin))
            self._pairs.push(row)
            self.lines.append(line + b"\n")

    def _converted_wrong(
        self, error: ValueError, row: Row | None = None
    ) -> SessionPersistenceCorruptionError:
        place = "" if row is None else f" (from seq {row.origin} of the file)"
        return self._corrupt(f"no valid log of format {self._version}: {error}{place}", cause=error)

    def _unsupported(self, error: CannotConvertError) -> SessionFormatUnsupportedError:
        return _cannot_convert(error, self._version, self.path)


def old_header_value(line: bytes, version: int, path: Path) -> dict[str, JsonValue]:
    """The header's object of an old log, its version checked and nothing else.

    Raises:
        SessionFormatUnsupportedError: A newer format than this build knows.
        SessionPersistenceCorruptionError: Not the format that the file's name says.
    """
    try:
        value = header_value(line)
        found = value.get("version")
        if type(found) is float and found.is_integer():
            found = int(found)
        if type(found) is not int or found < 0:
            raise ValueError(f"version must be a number, not {found!r}")
    except ValueError as error:
        raise SessionPersistenceCorruptionError(
            f"no valid header: {error}", str(path), line=1, cause=error
        ) from error
    if found != version:
        raise wrong_version(found, version, path)
    return {**value, "version": version}


def parse_old_header(line: bytes, version: int, path: Path) -> SessionHeader:
    """Read the header line of an old log as a header of the present format.

    Raises:
        SessionFormatUnsupportedError: It cannot be converted.
        SessionPersistenceCorruptionError: It is no header of that format.
    """
    return _native_header(old_header_value(line, version, path), version, path)


def _native_header(value: dict[str, JsonValue], version: int, path: Path) -> SessionHeader:
    try:
        return header_from_json(migrate_header(version, value))
    except CannotConvertError as error:
        raise _cannot_convert(error, version, path) from error
    except (BrokenRowError, InvalidHeaderError) as error:
        raise SessionPersistenceCorruptionError(
            f"no valid header of format {version}: {error}", str(path), line=1, cause=error
        ) from error


def _cannot_convert(
    error: CannotConvertError, version: int, path: Path
) -> SessionFormatUnsupportedError:
    return SessionFormatUnsupportedError(
        f"this log of format {version} cannot be converted: {error.message}",
        str(path),
        cause=error,
    )


def _json(line: bytes) -> JsonValue:
    try:
        return decode_json(line)
    except ValueError as error:
        raise BrokenRowError(f"not JSON: {error}") from error


def _stored(row: Row) -> bytes:
    """The row as format 4 stores it; numbers that no double holds take its nearest one."""
    out = native_row(row)
    if row.cited:
        out["sourceEventSeqs"] = encode_seq_ranges(row.cited)
    return encode_json(freeze_json(out, loading=True))
