"""How header and batches become bytes, and the header line comes back without the rest."""

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

from dsh_brand import encode_json
from dsh_session import SessionEvent, SessionHeader, encode_event, header_to_json
from dsh_session_jsonl import zstd_frames
from dsh_session_jsonl.layout import Compression
from dsh_session_jsonl.stored_lines import MAX_HEADER_BYTES, open_log
from dsh_session_persistence import SessionPersistenceCorruptionError, SessionStorageError

_HEADER_CHUNK: Final = 1 << 12


def header_line(header: SessionHeader) -> bytes:
    """The first line of a log."""
    return encode_json({"type": "session", **header_to_json(header)}) + b"\n"


def rows(events: Sequence[SessionEvent], *, path: Path, max_line_bytes: int) -> bytes:
    """The lines of a batch.

    Raises:
        SessionStorageError: A line is longer than what is read again.
    """
    lines = [encode_event(event) for event in events]
    longest = max(lines, key=len, default=b"")
    if len(longest) > max_line_bytes:
        event = events[lines.index(longest)]
        raise SessionStorageError(
            f"seq {event.seq} ({event.type!r}) is a line of {len(longest)} bytes, longer than the "
            f"{max_line_bytes} that can be read again: nothing of its batch was written",
            str(path),
        )
    return b"".join(line + b"\n" for line in lines)


def framed(text: bytes, compression: Compression) -> bytes:
    """A header line or a batch as it stands in the file."""
    return zstd_frames.encode_frame(text) if compression == "zstd" else text


def read_header_line(path: Path, compression: Compression) -> bytes:
    """Read the first line, without its end, and no more of the file than that takes.

    Raises:
        SessionPersistenceCorruptionError: There is no complete first line.
    """
    try:
        with open_log(path) as file:
            line = _first_line(file, compression)
    except zstd_frames.BadFrameError as error:
        raise SessionPersistenceCorruptionError(
            str(error), str(path), line=1, cause=error
        ) from error
    if line is None:
        raise SessionPersistenceCorruptionError("no complete header line", str(path), line=1)
    if len(line) > MAX_HEADER_BYTES:
        raise SessionPersistenceCorruptionError(
            f"the header line is longer than {MAX_HEADER_BYTES} bytes", str(path), line=1
        )
    return line


def _first_line(file: BinaryIO, compression: Compression) -> bytes | None:
    """The first line as far as it is wanted; `None` if there is none."""
    if compression == "zstd":
        line, newline, _ = (zstd_frames.first_text(file, MAX_HEADER_BYTES + 1) or b"").partition(
            b"\n"
        )
        return line if newline else None
    data = bytearray()
    while len(data) <= MAX_HEADER_BYTES:
        chunk = file.read(_HEADER_CHUNK)
        if not chunk:
            return None
        end = chunk.find(b"\n")
        if end >= 0:
            return bytes(data) + chunk[:end]
        data += chunk
    return bytes(data)
