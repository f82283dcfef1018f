"""How header and batches become bytes, and the header line comes back without the rest."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from dsh_brand import encode_json
from dsh_session import SessionEvent, SessionHeader, encode_event, header_to_json
from dsh_session_jsonl import zstd_frames
from dsh_session_jsonl.layout import Compression
from dsh_session_persistence import SessionPersistenceCorruptionError

_HEADER_CHUNK: Final = 1 << 12
_HEADER_LIMIT: Final = 1 << 24


def header_line(header: SessionHeader) -> bytes:
    """The first line of a log."""
    return encode_json({"type": "session", **header_to_json(header)}) + b"\n"


def rows(events: Sequence[SessionEvent]) -> bytes:
    """The lines of a batch."""
    return b"".join(encode_event(event) + b"\n" for event in events)


def framed(text: bytes, compression: Compression) -> bytes:
    """A header line or a batch as it stands in the file."""
    return zstd_frames.encode_frame(text) if compression == "zstd" else text


def read_header_line(path: Path, compression: Compression) -> bytes:
    """Read the first line, without its end, and no more of the file than that takes.

    Raises:
        SessionPersistenceCorruptionError: There is no complete first line.
    """
    with path.open("rb") as file:
        data = b""
        while len(data) < _HEADER_LIMIT:
            chunk = file.read(_HEADER_CHUNK)
            data += chunk
            line = _first_line(data, path, compression)
            if line is not None:
                return line
            if not chunk:
                break
    raise SessionPersistenceCorruptionError("no complete header line", str(path), line=1)


def _first_line(data: bytes, path: Path, compression: Compression) -> bytes | None:
    text = data
    if compression == "zstd":
        try:
            frame = next(zstd_frames.frames(data), None)
        except zstd_frames.BadFrameError as error:
            raise SessionPersistenceCorruptionError(
                str(error), str(path), line=1, cause=error
            ) from error
        text = frame.text if frame is not None and frame.complete else b""
    line, newline, _ = text.partition(b"\n")
    return line if newline else None
