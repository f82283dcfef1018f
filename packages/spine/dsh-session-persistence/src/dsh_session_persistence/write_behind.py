"""The buffer between live events and the store: one write per window, in order, never lossy."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import anyio
import anyio.lowlevel

from dsh_session import SessionEvent
from dsh_session_persistence._log import log

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


class _Window:
    """The time in which a batch gathers."""

    def __init__(self) -> None:
        self.end = anyio.current_time() + WINDOW_S


class WriteBehind:
    """Collects the events of one session and writes them in batches.

    The first event into an idle buffer opens a window; at its end everything collected is
    written as one batch. One timer serves all windows that open while it runs: to start and cancel
    a task for each would cost a short turn more than its events do.

    After a failed background write the batch stays in front and the automatic path pauses: the
    next explicit `drain` retries.
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
        self._window: _Window | None = None
        self._stop_timer: Callable[[], object] | None = None
        """Cancels the timer, while there is one."""
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
        self._window = None
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

    async def close(self) -> None:
        """`drain` for the last time, and end the timer; nothing may be pushed any more."""
        try:
            await self.drain()
        finally:
            if self._stop_timer is not None:
                self._stop_timer()

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
        self._window = _Window()
        if self._stop_timer is None:
            name = f"session-write-behind:{self._label}"
            self._stop_timer = self._spawn(self._watch_windows, name)

    async def _watch_windows(self) -> None:
        """Write at the end of each window, until none is open."""
        try:
            while (window := self._window) is not None:
                await self._sleep(max(0.0, window.end - anyio.current_time()))
                if self._window is window:
                    self._window = None
                    await self._write_in_background()
        finally:
            self._stop_timer = None

    async def _write_in_background(self) -> None:
        try:
            if self._drain is None:
                await self._run()
        except Exception as error:  # noqa: BLE001  # boundary: the batch is kept, the next flush raises
            log().warning(
                "session.write_behind_failed",
                session=self._label,
                pending=len(self._buffer),
                error=str(error),
            )
