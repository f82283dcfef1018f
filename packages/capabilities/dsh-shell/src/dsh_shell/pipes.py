"""Pipes between the host and a child, read and written without threads on both event loops.

The host makes them itself instead of asking the event loop: waiting for a process then never
depends on who holds its output, and closing one needs nobody's consent.
"""

import os
from typing import Final

import anyio
import anyio.lowlevel

CHUNK_BYTES: Final = 64 * 1024


class _End:
    """The host's end of a pipe."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor

    def close(self) -> None:
        """Close it; nobody may be reading or writing. Again is fine."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


class PipeReader(_End):
    """The host's end of a child's output."""

    async def receive(self, max_bytes: int = CHUNK_BYTES) -> bytes:
        """Some bytes; none at the end of the stream."""
        await anyio.lowlevel.checkpoint()
        while True:
            try:
                return os.read(self._descriptor, max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._descriptor)


class PipeWriter(_End):
    """The host's end of a child's input."""

    async def send(self, data: bytes) -> None:
        """Write all of it.

        Raises:
            BrokenPipeError: The child reads no more.
        """
        view = memoryview(data)
        await anyio.lowlevel.checkpoint()
        while view:
            try:
                view = view[os.write(self._descriptor, view[:CHUNK_BYTES]) :]
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)


def output_pipe() -> tuple[PipeReader, int]:
    """A reader, and the descriptor for the child; the caller closes that after the start."""
    ours, theirs = os.pipe()
    return PipeReader(ours), theirs


def input_pipe() -> tuple[PipeWriter, int]:
    """A writer, and the descriptor for the child; the caller closes that after the start."""
    theirs, ours = os.pipe()
    return PipeWriter(ours), theirs
