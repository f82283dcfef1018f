"""A store without threads or timers: slow, failing or cut off exactly when a test says so."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import anyio
import anyio.lowlevel

from dsh_cordis import Context, Service
from dsh_session import (
    SessionDisposed,
    SessionEvent,
    SessionEventAppended,
    SessionFlush,
    SessionHeader,
    SessionId,
)


class StoredSession:
    """One session on a `SimulatedDisk`."""

    def __init__(self, header: SessionHeader, inherited_event_count: int) -> None:
        self.header = header
        self.inherited_event_count = inherited_event_count
        self.events: list[SessionEvent] = []
        self.buffered: list[SessionEvent] = []
        """Not written yet; how much of it survives a crash is a matter of luck."""


class SimulatedDisk:
    """What survives a process."""

    def __init__(self) -> None:
        self.sessions: dict[SessionId, StoredSession] = {}
        self.failing = 0
        """How many coming writes fail."""
        self.failed = 0
        """How many have failed."""
        self.pause: Callable[[], int] = lambda: 0
        """How many passes through the scheduler an operation takes."""

    def after_crash(self, lucky: Callable[[int], int]) -> "SimulatedDisk":
        """A copy as a new process finds it.

        Args:
            lucky: Given how many events were buffered, how many of them were written.
        """
        copy = SimulatedDisk()
        for session_id, stored in self.sessions.items():
            kept = StoredSession(stored.header, stored.inherited_event_count)
            kept.events = [*stored.events, *stored.buffered[: lucky(len(stored.buffered))]]
            copy.sessions[session_id] = kept
        return copy

    async def work(self, *, writes: bool) -> None:
        """Take the time of one operation, then fail if one is to fail.

        Raises:
            OSError: It failed.
        """
        for _ in range(self.pause()):
            await anyio.lowlevel.checkpoint()
        if writes and self.failing:
            self.failing -= 1
            self.failed += 1
            raise OSError("the simulated disk is full")


class SimulatedHandle:
    """The write handle of one session."""

    def __init__(self, disk: SimulatedDisk, stored: StoredSession) -> None:
        self._disk = disk
        self.stored = stored
        self.closed = False
        # One write at a time: what is buffered is written in order, and once.
        self._turn = anyio.Lock()

    @property
    def header(self) -> SessionHeader:
        """As stored."""
        return self.stored.header

    @property
    def inherited_event_count(self) -> int:
        """As stored."""
        return self.stored.inherited_event_count

    async def read(self) -> Sequence[SessionEvent]:
        """The stored log."""
        await self._disk.work(writes=False)
        return tuple(self.stored.events)

    async def append(self, events: Sequence[SessionEvent]) -> None:
        """Store a batch that continues the log."""
        async with self._turn:
            await self._disk.work(writes=True)
            self._write(events)

    async def flush(self) -> None:
        """Store what is buffered."""
        async with self._turn:
            batch = list(self.stored.buffered)
            with anyio.CancelScope(shield=True):
                await self._disk.work(writes=True)
                self._write(batch)
                del self.stored.buffered[: len(batch)]

    async def close(self) -> None:
        """Store what is buffered and give the session up."""
        if self.closed:
            return
        self.closed = True
        await self.flush()

    def take(self, event: SessionEvent) -> None:
        """Buffer a live event."""
        if not self.closed:
            self.stored.buffered.append(event)

    def _write(self, events: Sequence[SessionEvent]) -> None:
        for event in events:
            if event.seq != len(self.stored.events):
                raise AssertionError(f"seq {event.seq} was stored at {len(self.stored.events)}")
            self.stored.events.append(event)


class SimulatedStore(Service):
    """`ctx.session_persistence` over a `SimulatedDisk`."""

    key: ClassVar[str] = "session_persistence"

    def __init__(self, ctx: Context, disk: SimulatedDisk) -> None:
        super().__init__(ctx)
        self._disk = disk
        self._handles: dict[SessionId, SimulatedHandle] = {}
        self._leaving: list[SimulatedHandle] = []
        ctx.on(SessionEventAppended, self._on_event, everywhere=True)
        ctx.on(SessionFlush, self._on_flush, everywhere=True)
        ctx.on(SessionDisposed, self._retire, everywhere=True)
        ctx.on(SessionDisposed, self._on_disposed, everywhere=True)

    async def create(self, header: SessionHeader, inherited_event_count: int) -> SimulatedHandle:
        """Claim a new session."""
        await self._disk.work(writes=False)
        if header.id in self._disk.sessions:
            raise FileExistsError(header.id)
        stored = StoredSession(header, inherited_event_count)
        self._disk.sessions[header.id] = stored
        return self._handle(stored)

    async def open(self, session_id: SessionId, access: str) -> SimulatedHandle:
        """Claim a stored session."""
        del access
        await self._disk.work(writes=False)
        return self._handle(self._disk.sessions[session_id])

    def _handle(self, stored: StoredSession) -> SimulatedHandle:
        stored.buffered.clear()
        handle = SimulatedHandle(self._disk, stored)
        self._handles[stored.header.id] = handle
        return handle

    def _on_event(self, event: SessionEventAppended) -> None:
        handle = self._handles.get(event.session.id)
        if handle is not None:
            handle.take(event.event)

    async def _on_flush(self, event: SessionFlush) -> None:
        handle = self._handles.get(event.session.id)
        if handle is not None and not handle.closed:
            await handle.flush()

    def _retire(self, event: SessionDisposed) -> None:
        # At once: when the listener below runs, the session may have a new handle.
        handle = self._handles.pop(event.session.id, None)
        if handle is not None:
            self._leaving.append(handle)

    async def _on_disposed(self, event: SessionDisposed) -> None:
        while self._leaving:
            await self._leaving.pop().close()
