"""Keeps the end of a byte stream, and the whole of it on disk once it outgrows memory."""

import os
from functools import partial
from pathlib import Path

import anyio.to_thread
import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from ._files import create_private, safe_name
from .types import Collect, Spill

log: FilteringBoundLogger = structlog.get_logger(__name__)


class Piece(msgspec.Struct, frozen=True):
    """Bytes from some offset on."""

    data: bytes
    next_offset: int
    """Where the next reading goes on."""
    lossy: bool
    """True if bytes between the asked offset and these were dropped."""


class Collector:
    """The exact last bytes of a stream. Reading consumes nothing.

    Attributes:
        ends_beyond: The process is not wanted any longer once this is lossy.
    """

    def __init__(self, spec: Collect) -> None:
        self.ends_beyond = spec.ends_beyond
        self._limit = spec.max_bytes
        self._kept = bytearray()
        self._total = 0
        self._spill = None if spec.spill is None else _SpillFile(spec.spill)

    @property
    def total_bytes(self) -> int:
        """How many came in."""
        return self._total

    @property
    def lossy(self) -> bool:
        """True if some are no longer in memory."""
        return self._total > len(self._kept)

    @property
    def file(self) -> Path | None:
        """Holds the whole stream; `None` unless it outgrew memory and the file is complete."""
        return None if self._spill is None else self._spill.path

    async def feed(self, data: bytes) -> None:
        """Take the next bytes."""
        spill = self._spill
        if spill is not None and self._total + len(data) > self._limit:
            if not self.lossy and self._kept and not spill.begun:
                await spill.write(bytes(self._kept))
            await spill.write(data)
        self._total += len(data)
        self._kept += data
        if len(self._kept) > self._limit:
            del self._kept[: len(self._kept) - self._limit]

    def read(self, offset: int = 0) -> Piece:
        """What is still there from `offset` on."""
        first = self._total - len(self._kept)
        start = min(max(offset, first), self._total)
        return Piece(bytes(self._kept[start - first :]), self._total, offset < first)

    async def finish(self) -> None:
        """Nothing more comes."""
        if self._spill is not None:
            await self._spill.close()


class _SpillFile:
    """A file that holds everything, or does not exist."""

    def __init__(self, spec: Spill) -> None:
        self._spec = spec
        self._descriptor: int | None = None
        self._path: Path | None = None
        self._written = 0
        self._given_up = False

    @property
    def begun(self) -> bool:
        return self._descriptor is not None or self._given_up

    @property
    def path(self) -> Path | None:
        return None if self._given_up else self._path

    async def write(self, data: bytes) -> None:
        if not self._given_up:
            await anyio.to_thread.run_sync(partial(self._write, data))

    async def close(self) -> None:
        if self._descriptor is not None:
            await anyio.to_thread.run_sync(self._close)

    def _write(self, data: bytes) -> None:
        if self._written + len(data) > self._spec.max_bytes:
            self._give_up()
            return
        try:
            if self._descriptor is None:
                self._path, self._descriptor = create_private(
                    self._spec.directory, f"{safe_name(self._spec.label)}.txt"
                )
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            # A full disk costs the full output, not the command.
            log.warning("spill.write_failed", errno=error.errno, written_bytes=self._written)
            self._give_up()
            return
        self._written += len(data)

    def _give_up(self) -> None:
        self._given_up = True
        self._close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)
