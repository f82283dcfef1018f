"""Frames of a compressed log: one for the header line, then one per batch.

The library decodes; where a frame ends is read from its block headers, so that a long log of many
frames is walked once and a frame that a crash cut off is told from a damaged one. A frame is read
in pieces: no file, whatever somebody packed into it, takes more memory than a few of them.
"""

from collections.abc import Iterator
from io import SEEK_END
from typing import BinaryIO, Final, NamedTuple

from dsh_session_persistence import SessionStorageError

_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_DICTIONARY_BYTES: Final = (0, 1, 2, 4)
_CONTENT_SIZE_BYTES: Final = (0, 2, 4, 8)
_LONGEST_HEADER: Final = 1 + 1 + 4 + 8
_RLE_BLOCK: Final = 1
_RESERVED_BLOCK: Final = 3

_PIECE: Final = 1 << 20
_ZEROS: Final = bytes(_PIECE)
_COMPRESSED_PIECE: Final = 1 << 10
"""Decodes to 32 MiB at most, whatever somebody packed into it."""

_HELD_BYTES: Final = 1 << 24
"""A frame that decodes to more is decoded twice: to prove it, then to read it."""


class BadFrameError(ValueError):
    """These bytes are no frame, complete or cut off."""


class Frame(NamedTuple):
    """One frame of a file."""

    start: int
    end: int
    complete: bool
    text: Iterator[bytes]
    """What it decodes to, in pieces; of an incomplete frame, as much as there is.

    To be read before the next frame is asked for.
    """


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


def frames(file: BinaryIO, start: int = 0) -> Iterator[Frame]:
    """Walk the frames of a file, the last one possibly incomplete.

    A complete frame comes only after all of it proved good.

    Raises:
        BadFrameError: Something that is no frame, or fails its checksum; what came before is good.
    """
    data, decoder = _FileBytes(file), _Decoder()
    while start < data.size:
        end = _frame_end(data, start)
        stop = data.size if end is None else end
        try:
            text = decoder.text_of(data, start, end)
        except BadFrameError:
            if end is not None:
                raise
            text = iter(())
        if end is None and _frame_after(data, decoder, start + 1):
            raise BadFrameError(f"the frame at byte {start} is damaged: good frames follow it")
        yield Frame(start, stop, end is not None, text)
        start = stop


def first_text(file: BinaryIO, most: int) -> bytes | None:
    """What the first frame of a file decodes to; `None` if the file ends inside it.

    Raises:
        BadFrameError: It is no frame, is damaged, or holds more than `most` bytes.
    """
    import zstandard  # only a compressed root needs the library

    decoder = zstandard.ZstdDecompressor().decompressobj()
    text, taken = b"", 0
    while not decoder.eof:
        piece = file.read(_COMPRESSED_PIECE)
        if not piece:
            return None
        if not taken and not piece.startswith(_MAGIC[: len(piece)]):
            raise _no_frame(0)
        taken += len(piece)
        try:
            text += decoder.decompress(piece)
        except zstandard.ZstdError as error:
            raise BadFrameError(f"the first frame is damaged: {error}") from error
        if max(len(text), taken // 2) > most:
            raise BadFrameError(f"the first frame holds more than {most} bytes")
    return text


class _FileBytes:
    """The bytes of a file, of which a window is in memory.

    Not mapped into memory: a writer may cut the file meanwhile.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = file.seek(0, SEEK_END)
        self._window = b""
        self._window_start = 0

    def read(self, start: int, size: int) -> bytes:
        size = max(0, min(size, self.size - start))
        at = start - self._window_start
        if at < 0 or at + size > len(self._window):
            self._file.seek(start)
            self._window = self._file.read(max(size, min(_PIECE, self.size - start)))
            self._window_start, at = start, 0
        return self._window[at : at + size]

    def pieces(self, start: int, end: int, size: int) -> Iterator[bytes]:
        for at in range(start, end, size):
            yield self.read(at, min(size, end - at))

    def find(self, wanted: bytes, start: int) -> int:
        while start < self.size:
            piece = self.read(start, _PIECE)
            if (found := piece.find(wanted)) >= 0:
                return start + found
            start += max(1, len(piece) - len(wanted) + 1)
        return -1


class _Decoder:
    """Decodes the frames of one file."""

    def __init__(self) -> None:
        import zstandard  # only a compressed root needs the library

        self._error = zstandard.ZstdError
        self._parameters = zstandard.get_frame_parameters
        self._decompressor = zstandard.ZstdDecompressor()

    def text_of(self, data: _FileBytes, start: int, end: int | None) -> Iterator[bytes]:
        """The text of a frame, once the library has gone through all of it without complaint.

        Args:
            data: The file.
            start: Where the frame begins.
            end: Where it ends; `None` if it is cut off.

        Raises:
            BadFrameError: It is damaged.
        """
        if end is not None and end - start <= _PIECE:
            text = self._at_once(data.read(start, end - start), start)
            if text is not None:
                return iter((text,))
        stop = data.size if end is None else end
        held: list[bytes] = []
        size = 0
        for piece in self.pieces(data, start, stop):
            size += len(piece)
            if size <= _HELD_BYTES:
                held.append(piece)
            else:
                held.clear()
        return iter((b"".join(held),)) if size <= _HELD_BYTES else self.pieces(data, start, stop)

    def pieces(self, data: _FileBytes, start: int, end: int) -> Iterator[bytes]:
        """What a frame decodes to, however long that is; raises as `text_of`."""
        decoder = self._decompressor.decompressobj()
        try:
            for piece in data.pieces(start, end, _COMPRESSED_PIECE):
                yield decoder.decompress(piece)
        except self._error as error:
            raise _damaged(start, error) from error

    def _at_once(self, frame: bytes, start: int) -> bytes | None:
        """The text of a frame that says how long it is, if that is not too long."""
        try:
            if 0 < self._parameters(frame).content_size <= _HELD_BYTES:
                return self._decompressor.decompress(frame)
        except self._error as error:
            raise _damaged(start, error) from error
        return None


def _no_frame(start: int) -> BadFrameError:
    return BadFrameError(f"byte {start} does not begin a zstd frame")


def _damaged(start: int, error: Exception) -> BadFrameError:
    return BadFrameError(f"the frame at byte {start} is damaged: {error}")


def _frame_end(data: _FileBytes, start: int) -> int | None:
    """Where the frame ends; `None` if the data end first.

    Raises:
        BadFrameError: It does not begin like a frame, or has an impossible block.
    """
    head = data.read(start, len(_MAGIC) + _LONGEST_HEADER)
    if not _MAGIC.startswith(head[: len(_MAGIC)]):
        if all(_ZEROS.startswith(piece) for piece in data.pieces(start, data.size, _PIECE)):
            # A crash may leave a file longer than what reached the disk, filled with zeros.
            return None
        raise _no_frame(start)
    if len(head) <= len(_MAGIC):
        return None
    descriptor = head[len(_MAGIC)]
    position = start + len(_MAGIC) + _header_length(descriptor)
    while len(raw := data.read(position, 3)) == 3:
        block = int.from_bytes(raw, "little")
        kind = (block >> 1) & 3
        if kind == _RESERVED_BLOCK:
            raise BadFrameError(f"the frame at byte {start} has an impossible block")
        position += 3 + (1 if kind == _RLE_BLOCK else block >> 3)
        if block & 1:
            position += 4 if descriptor & 4 else 0
            return position if position <= data.size else None
    return None


def _frame_after(data: _FileBytes, decoder: _Decoder, start: int) -> bool:
    """Whether a complete frame begins later: then what comes before it was no crash.

    The magic bytes are no UTF-8, so no text of a log holds them uncompressed.
    """
    while (start := data.find(_MAGIC, start)) >= 0:
        try:
            end = _frame_end(data, start)
            if end is not None:
                decoder.text_of(data, start, end)
                return True
        except BadFrameError:
            pass
        start += 1
    return False


def _header_length(descriptor: int) -> int:
    single_segment = descriptor & 0x20
    size = _CONTENT_SIZE_BYTES[descriptor >> 6] or (1 if single_segment else 0)
    window = 0 if single_segment else 1
    return 1 + window + _DICTIONARY_BYTES[descriptor & 3] + size
