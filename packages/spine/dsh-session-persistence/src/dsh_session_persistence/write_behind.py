"""The buffer between live events and the store: one write per window, in order, never lossy."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import anyio.lowlevel
import structlog
from structlog.typing import FilteringBoundLogger

from dsh_session import SessionEvent

log: FilteringBoundLogger = structlog.get_logger(__name__)

WINDOW_S: Final = 0.2
"""How long the first event of a batch waits for company."""

Spawn = Callable[[Callable[[], Awaitable[object]], str], Callable[[], object]]
"""Starts a task under an owner that joins it; the result cancels it."""


class _Drain:
    """One run of `WriteBehind.drain` that several callers share."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.error: Exception | None = None
        self.finished = False


class WriteBehind:
    """Collects the events of one session and writes them in batches.

    The first event into an idle buffer opens a window; at its end everything collected is
    written as one batch. After a failed background write the batch stays in front and the
    automatic path pauses: the next explicit `drain` retries.
    """

    def __init__(
        self,
        label: str,
        write: Callable[[Sequence[SessionEvent]], Awaitable[None]],
        spawn: Spawn,
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._label = label
        self._write = write
        self._spawn = spawn
        self._sleep = sleep
        self._buffer: list[SessionEvent] = []
        self._drain: _Drain | None = None
        self._window: Callable[[], object] | None = None
        self._paused = False

    def __len__(self) -> int:
        return len(self._buffer)

    def push(self, event: SessionEvent) -> None:
        """Take one event; returns at once."""
        self._buffer.append(event)
        if self._window is None and self._drain is None and not self._paused:
            self._open_window()

    async def drain(self) -> None:
        """Write until the buffer is empty; concurrent callers share one run and its failure.

        A cancelled caller leaves each batch written or still buffered, and the run to the others.
        """
        self._close_window()
        while True:
            running = self._drain
            if running is None:
                await self._run()
                return
            await running.done.wait()
            if running.error is not None:
                raise running.error
            if running.finished:
                return

    async def _run(self) -> None:
        drain = self._drain = _Drain()
        try:
            while self._buffer:
                await self._write_front()
            drain.finished = True
            self._paused = False
        except Exception as error:
            self._paused = True
            drain.error = error
            raise
        finally:
            self._drain = None
            drain.done.set()
            if self._buffer and not self._paused:
                self._open_window()

    async def _write_front(self) -> None:
        batch = tuple(self._buffer)
        with anyio.CancelScope(shield=True):
            await self._write(batch)
            # Only what is stored leaves the buffer; what came meanwhile stays behind it.
            del self._buffer[: len(batch)]
        await anyio.lowlevel.checkpoint_if_cancelled()

    def _open_window(self) -> None:
        self._window = self._spawn(self._wait_and_write, f"session-write-behind:{self._label}")

    def _close_window(self) -> None:
        window, self._window = self._window, None
        if window is not None:
            window()

    async def _wait_and_write(self) -> None:
        await self._sleep(WINDOW_S)
        # From here on the task is a drain like any other: `_close_window` must not cut it off.
        self._window = None
        try:
            if self._drain is None:
                await self._run()
        except Exception as error:  # noqa: BLE001  # boundary: the batch is kept, the next flush raises
            log.warning(
                "session.write_behind_failed",
                session=self._label,
                pending=len(self._buffer),
                error=str(error),
            )
