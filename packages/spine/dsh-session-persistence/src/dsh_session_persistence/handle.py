"""A session's handle: the only way to its stored events. Upstream: session-persistence handles."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import anyio
import anyio.to_thread

from dsh_session import CheckedLog, SessionEvent, SessionHeader, SessionId
from dsh_session_persistence.errors import (
    SessionBatchRefusedError,
    SessionHandleClosedError,
    SessionReadOnlyError,
)
from dsh_session_persistence.types import Access, SessionLog
from dsh_session_persistence.write_behind import Spawn, WriteBehind

T = TypeVar("T")


class SessionHandle:
    """Reads and, opened for writing, extends one stored session.

    Operations run one after another in call order; one that fails does not block the next. Made by
    `SessionPersistence.create` and `.open`; whoever asked for it closes it (`async with`).
    """

    def __init__(
        self,
        log: SessionLog,
        access: Access,
        *,
        limiter: anyio.CapacityLimiter,
        released: Callable[["SessionHandle"], object],
        spawn: Spawn,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self._log = log
        self._access: Access = access
        self._limiter = limiter
        self._released = released
        # Invariant: one worker thread at a time uses the log, in call order (the lock is fair).
        self._turn = anyio.Lock()
        self._buffer = WriteBehind(log.header.id, self._append, spawn, sleep=sleep)
        self._flushes_waiting = 0
        self._batches = 0
        self._flushed_batches = 0
        """How many of the batches are known to be durable."""
        self._closing: anyio.Event | None = None
        self._log_closed = False
        self._retired = False
        self._close_error: Exception | None = None

    @property
    def id(self) -> SessionId:
        """The session's id."""
        return self._log.header.id

    @property
    def header(self) -> SessionHeader:
        """The header as stored."""
        return self._log.header

    @property
    def inherited_event_count(self) -> int:
        """Length of the fork prefix, 0 for a session that is no fork."""
        return self._log.inherited_event_count

    @property
    def access(self) -> Access:
        """What the handle was opened for."""
        return self._access

    @property
    def path(self) -> Path | None:
        """Where the log lies (a created session: will lie); `None` when it is no file."""
        return self._log.path

    @property
    def closed(self) -> bool:
        """Whether `close` was asked for."""
        return self._closing is not None

    @property
    def retired(self) -> bool:
        """Whether the handle is on its way out: its session is gone, or it is closing."""
        return self._retired or self.closed

    @property
    def materialized(self) -> bool:
        """Whether other processes can see the session."""
        return self._log.materialized

    @property
    def pending(self) -> int:
        """How many live events wait to be written."""
        return len(self._buffer)

    async def read(self, offset: int = 0, length: int | None = None) -> Sequence[SessionEvent]:
        """Return the valid log or a slice of it, fixed as it is now; empty past the log's end.

        The whole log as a store read it is a `CheckedLog`, which a session takes over as it is.
        Never older than what this handle saw or wrote before; a torn tail is never part of it.

        Args:
            offset: First seq of the slice.
            length: How many events at most; `None` means to the end.

        Raises:
            SessionHandleClosedError: The handle is closed.
            ValueError: An argument is negative or no integer.
            SessionPersistenceCorruptionError: The stored bytes are no valid log.
        """
        self._check_open()
        start = _count("offset", offset)
        end = None if length is None else start + _count("length", length)
        events = await self._in_turn(self._log.read)
        if isinstance(events, CheckedLog) and start == 0 and end is None:
            return events  # immutable, and who resumes from it need not check its events again
        return tuple(events[start:end])

    async def append(self, events: Sequence[SessionEvent]) -> None:
        """Store a batch that continues the log; all of it, or nothing.

        The batch is taken as it is at the call. When this returns, the batch is ordered and
        visible to every later read; `flush` is what promises that it survives a crash. A caller
        cancelled meanwhile leaves nothing or the complete batch.

        Raises:
            SessionHandleClosedError: The handle is closed.
            SessionReadOnlyError: The handle was opened for reading.
            SessionBatchRefusedError: The batch does not continue the log without gap.
            SessionOwnershipLostError: Somebody else changed the log.
            SessionStorageError: The store could not write; the same batch may be tried again.
        """
        self._check_writable()
        await self._append(tuple(events))

    async def flush(self) -> None:
        """Write what is pending and make it durable; an empty session begins to exist.

        Raises:
            SessionHandleClosedError: The handle is closed.
            SessionReadOnlyError: The handle was opened for reading.
            SessionStorageError: The store could not write; what is pending stays pending.
        """
        self._check_writable()
        before = self._batches
        self._flushes_waiting += 1
        try:
            await self._buffer.drain()
        finally:
            self._flushes_waiting -= 1
        if self._batches == before or self._flushed_batches < self._batches:
            await self._in_turn(self._log.flush)

    async def close(self) -> None:
        """Write what is pending, then give up the claim; idempotent and not cancellable.

        The claim is released even when writing failed; the failure is raised afterwards, to every
        caller of `close`. What could not be written is lost with the handle.
        """
        with anyio.CancelScope(shield=True):
            if self._closing is None:
                self._closing = anyio.Event()
                await self._close(self._closing)
            else:
                await self._closing.wait()
        if self._close_error is not None:
            raise self._close_error

    def retire(self) -> None:
        """Say that the session is gone and `close` follows; a new owner then waits for it."""
        self._retired = True

    def take(self, event: SessionEvent) -> None:
        """Buffer one live event of the session; returns at once. The service calls this."""
        if not self.closed:
            self._buffer.push(event)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _close(self, closed: anyio.Event) -> None:
        errors: list[Exception] = []
        try:
            for step in (self._buffer.close, self._close_log):
                try:
                    await step()
                except Exception as error:  # noqa: BLE001  # the claim goes whatever fails, then it is raised
                    errors.append(error)
        finally:
            if len(errors) == 1:
                self._close_error = errors[0]
            elif errors:
                self._close_error = ExceptionGroup(f"closing session {self.id!r} failed", errors)
            self._released(self)
            closed.set()

    async def _close_log(self) -> None:
        try:
            await self._in_turn(self._log.close)
        finally:
            self._log_closed = True

    async def _append(self, batch: Sequence[SessionEvent]) -> None:
        if batch:
            await self._in_turn(lambda: self._append_blocking(batch))

    def _append_blocking(self, batch: Sequence[SessionEvent]) -> None:
        for expected, event in enumerate(batch, self._log.end):
            if event.seq != expected:
                raise SessionBatchRefusedError(self.id, expected, event.seq)
        self._log.append(batch)
        self._batches += 1
        if self._flushes_waiting:
            self._flush_at_once()

    def _flush_at_once(self) -> None:
        """Spare whoever waits for a flush a second way to the thread and back."""
        try:
            self._log.flush()
        except Exception:  # noqa: BLE001  # the batch is stored; who waits asks again, and is told
            return
        self._flushed_batches = self._batches

    async def _in_turn(self, call: Callable[[], T]) -> T:
        async with self._turn:
            if self._log_closed:
                raise SessionHandleClosedError(self.id)
            # Not abandoned on cancellation: a started write ends before the caller goes on.
            return await anyio.to_thread.run_sync(call, limiter=self._limiter)

    def _check_open(self) -> None:
        if self.closed:
            raise SessionHandleClosedError(self.id)

    def _check_writable(self) -> None:
        self._check_open()
        if self._access != "write":
            raise SessionReadOnlyError(self.id)


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is a non-negative integer, not {value!r}")
    return value
