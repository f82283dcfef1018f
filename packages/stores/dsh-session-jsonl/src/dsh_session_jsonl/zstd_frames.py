"""Frames of a compressed log: one for the header line, then one per batch.

The library decodes; where a frame ends is read from its block headers, so that a long log of many
frames is walked once and a frame that a crash cut off is told from a damaged one.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from dsh_session_persistence import SessionStorageError

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)
_RLE_BLOCK: Final = 1
_RESERVED_BLOCK: Final = 3


class BadFrameError(ValueError):
    """These bytes are no frame, complete or cut off."""


class Frame(NamedTuple):
    """One frame of a file."""

    start: int
    end: int
    complete: bool
    text: bytes
    """What it decodes to; of an incomplete frame, as much as there is."""


def check_available() -> None:
    """Fail where the library is missing, before anything is written in another encoding."""
    try:
        import zstandard  # noqa: F401  # only a compressed root needs the library
    except ImportError as error:
        raise SessionStorageError(
            "compression 'zstd' needs the package zstandard: install it, "
            "or set compression = 'none' for a new root",
            "dsh-session-jsonl",
            cause=error,
        ) from error


def encode_frame(text: bytes) -> bytes:
    """Compress one batch into a frame with checksum."""
    import zstandard  # only a compressed root needs the library

    return zstandard.ZstdCompressor(write_checksum=True).compress(text)


def frames(data: bytes, start: int = 0) -> Iterator[Frame]:
    """Walk the frames of a file, the last one possibly incomplete.

    Raises:
        BadFrameError: Something that is no frame, or fails its checksum; what came before is good.
    """
    import zstandard  # only a compressed root needs the library

    decompressor = zstandard.ZstdDecompressor()
    while start < len(data):
        end = _frame_end(data, start)
        body = data[start:end]
        try:
            text = decompressor.decompressobj().decompress(body)
        except zstandard.ZstdError as error:
            if end is not None:
                raise BadFrameError(f"the frame at byte {start} is damaged: {error}") from error
            text = b""
        if end is None and _frame_after(data, start + 1):
            raise BadFrameError(f"the frame at byte {start} is damaged: good frames follow it")
        yield Frame(start, len(data) if end is None else end, end is not None, text)
        if end is None:
            return
        start = end


def _frame_end(data: bytes, start: int) -> int | None:
    """Where the frame ends; `None` if the data end first.

    Raises:
        BadFrameError: It does not begin like a frame, or has an impossible block.
    """
    if not _MAGIC.startswith(data[start : start + len(_MAGIC)]):
        if not any(memoryview(data)[start:]):
            # A crash may leave a file longer than what reached the disk, filled with zeros.
            return None
        raise BadFrameError(f"byte {start} does not begin a zstd frame")
    position = _after_header(data, start + len(_MAGIC))
    while position + 3 <= len(data):
        block = int.from_bytes(data[position : position + 3], "little")
        kind = (block >> 1) & 3
        if kind == _RESERVED_BLOCK:
            raise BadFrameError(f"the frame at byte {start} has an impossible block")
        position += 3 + (1 if kind == _RLE_BLOCK else block >> 3)
        if block & 1:
            position += 4 if _has_checksum(data, start) else 0
            return position if position <= len(data) else None
    return None


def _frame_after(data: bytes, start: int) -> bool:
    """Whether a complete frame begins later: then what comes before it was no crash.

    The magic bytes are no UTF-8, so no text of a log holds them uncompressed.
    """
    import zstandard  # only a compressed root needs the library

    while (start := data.find(_MAGIC, start)) >= 0:
        try:
            end = _frame_end(data, start)
            if end is not None:
                zstandard.ZstdDecompressor().decompressobj().decompress(data[start:end])
                return True
        except (BadFrameError, zstandard.ZstdError):
            pass
        start += 1
    return False


def _after_header(data: bytes, position: int) -> int:
    if position >= len(data):
        return len(data)
    descriptor = data[position]
    single_segment = descriptor & 0x20
    size = _CONTENT_SIZE_BYTES[descriptor >> 6] or (1 if single_segment else 0)
    window = 0 if single_segment else 1
    return position + 1 + window + _DICTIONARY_BYTES[descriptor & 3] + size


def _has_checksum(data: bytes, start: int) -> bool:
    return bool(data[start + len(_MAGIC)] & 4)
