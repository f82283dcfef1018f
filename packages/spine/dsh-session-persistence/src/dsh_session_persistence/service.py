"""`ctx.session_persistence`: claims, handles and live routing. Upstream: session-persistence."""

import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import ClassVar, TypeVar

import anyio
import anyio.to_thread

from dsh_cordis import Context, InactiveError, Service, scope_of
from dsh_session import (
    SessionDisposed,
    SessionEventAppended,
    SessionFlush,
    SessionHeader,
    SessionId,
)
from dsh_session_persistence._pending import PendingLog, pending_snapshot
from dsh_session_persistence.errors import (
    SessionAlreadyExistsError,
    SessionAlreadyOwnedError,
    SessionHandleClosedError,
    SessionPersistenceNotFoundError,
)
from dsh_session_persistence.handle import SessionHandle
from dsh_session_persistence.types import (
    Access,
    SessionListing,
    SessionLog,
    SessionLogStore,
    SessionPersistenceSnapshot,
)

T = TypeVar("T")
_STORE_THREADS = 8
"""Worker threads of one store; its own, since the shared ones may all wait for this store."""


class SessionPersistence(Service):
    """Keeps session logs beyond the process; every read and write goes through a handle.

    A store is a subclass that passes its `SessionLogStore` on. The live events of a session whose
    write handle is open are gathered for 200 ms and stored as one batch;
    `await ctx.sessions.flush(session)` waits for the disk.
    """

    key: ClassVar[str] = "session_persistence"

    def __init__(
        self,
        ctx: Context,
        store: SessionLogStore,
        *,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        """Claim the key on `ctx`; `sleep` is the clock of the write-behind window."""
        super().__init__(ctx)
        # The service's own context: `self.ctx` of a view is the caller's.
        self._home = ctx
        self._store = store
        self._sleep = sleep
        self._limiter = anyio.CapacityLimiter(_STORE_THREADS)
        self._writers: dict[SessionId, SessionHandle | None] = {}
        self._readers: set[SessionHandle] = set()
        self._unloaded = False
        # Registered first, so undone last: no event arrives any more when the handles close.
        ctx.effect(lambda: self._close_all, label="close session handles")
        # A handle may belong to a session of any scope, wherever this store is mounted.
        everywhere = scope_of(ctx) is not None
        ctx.on(SessionEventAppended, self._on_event, everywhere=everywhere)
        ctx.on(SessionFlush, self._on_flush, everywhere=everywhere)
        ctx.on(SessionDisposed, self._retire, everywhere=everywhere)
        ctx.on(SessionDisposed, self._on_disposed, everywhere=everywhere)

    async def create(self, header: SessionHeader, inherited_event_count: int = 0) -> SessionHandle:
        """Claim a new session and return its write handle.

        The session is visible here at once, to other processes from the first append or flush
        on; closed before that, it leaves no trace.

        Args:
            header: The session's header.
            inherited_event_count: Length of the fork prefix; 0 unless the header is seeded.

        Raises:
            SessionAlreadyExistsError: The id is stored or claimed.
            ValueError: The count does not fit the header.
        """
        _check_count(header, inherited_event_count)
        await self._closing_done(header.id)
        if header.id in self._writers:
            raise SessionAlreadyExistsError(header.id)
        return await self._claim(
            header.id, lambda: self._store.create(header, inherited_event_count)
        )

    async def open(self, session_id: SessionId, access: Access) -> SessionHandle:
        """Open a stored session; `"write"` claims the single writer, `"read"` never claims.

        Args:
            session_id: Which session.
            access: `"read"` works beside a writer; `"write"` excludes other writers.

        Raises:
            SessionPersistenceNotFoundError: The id is unknown.
            SessionAlreadyOwnedError: Somebody else writes it.
            SessionFormatUnsupportedError: The log needs another build.
            SessionPersistenceCorruptionError: The stored bytes are no valid log.
        """
        await self._closing_done(session_id)
        if access == "read":
            return await self._open_reader(session_id)
        if access != "write":
            raise ValueError(f"access is 'read' or 'write', not {access!r}")
        if session_id in self._writers:
            raise SessionAlreadyOwnedError(session_id)
        return await self._claim(session_id, lambda: self._store.open(session_id, "write"))

    async def stat(self, session_id: SessionId) -> SessionPersistenceSnapshot:
        """Describe one session by its header alone.

        Raises:
            SessionPersistenceNotFoundError: The id is unknown.
            SessionFormatUnsupportedError: The log needs another build.
            SessionPersistenceCorruptionError: The header is no valid header.
        """
        try:
            return await self._blocking(lambda: self._store.stat(session_id))
        except SessionPersistenceNotFoundError:
            writer = self._writers.get(session_id)
            if writer is None:
                raise
        if writer.materialized:
            # Written between the look into the store and the look at the claims.
            return await self._blocking(lambda: self._store.stat(session_id))
        return pending_snapshot(writer.header)

    async def list(self) -> SessionListing:
        """Describe all sessions by their headers; what cannot be read is a problem entry."""
        # Taken first: one that is written meanwhile is in the store's listing or still in this.
        pending = [writer.header for writer in self._open_writers() if not writer.materialized]
        listing = await self._blocking(self._store.list)
        known = {snapshot.header.id for snapshot in listing.sessions}
        unwritten = [pending_snapshot(header) for header in pending if header.id not in known]
        return SessionListing(
            sessions=(*listing.sessions, *unwritten), problems=tuple(listing.problems)
        )

    def path_of(self, session_id: SessionId) -> Path | None:
        """Where the log of a session lies that is open for writing here, for people.

        `None` when the store has no files, or the session is not open for writing.
        """
        writer = self._writers.get(session_id)
        return None if writer is None else writer.path

    async def flush(self) -> None:
        """Flush every open write handle; one closed meanwhile counts as flushed.

        Raises:
            ExceptionGroup: What failed, after all were tried.
        """
        await _settle_all("flushing sessions failed", self._open_writers(), _flush_open)

    async def _open_reader(self, session_id: SessionId) -> SessionHandle:
        try:
            opened = await self._blocking(lambda: self._store.open(session_id, "read"))
        except SessionPersistenceNotFoundError:
            writer = self._writers.get(session_id)
            if writer is None:
                raise
            opened = PendingLog(self._store, writer)
        handle = self._handle(opened, "read")
        self._readers.add(handle)
        return await self._kept(handle)

    async def _claim(
        self, session_id: SessionId, opener: Callable[[], SessionLog]
    ) -> SessionHandle:
        self._writers[session_id] = None
        try:
            with anyio.CancelScope(shield=True):
                # A caller cancelled here would lose the opened log together with its lock.
                handle = self._handle(await self._blocking(opener), "write")
        except BaseException:
            del self._writers[session_id]
            raise
        self._writers[session_id] = handle
        return await self._kept(handle)

    async def _kept(self, handle: SessionHandle) -> SessionHandle:
        """Hand the handle out, unless the store went down while it was opened."""
        if self._unloaded:
            await handle.close()
            raise InactiveError(self.key, f"opening session {handle.id!r}")
        return handle

    def _handle(self, opened: SessionLog, access: Access) -> SessionHandle:
        return SessionHandle(
            opened,
            access,
            limiter=self._limiter,
            released=self._release,
            spawn=self._spawn,
            sleep=self._sleep,
        )

    def _release(self, handle: SessionHandle) -> None:
        self._readers.discard(handle)
        if self._writers.get(handle.id) is handle:
            del self._writers[handle.id]

    def _spawn(self, body: Callable[[], Awaitable[object]], name: str) -> Callable[[], object]:
        try:
            return self._home.spawn(body, name=name)
        except InactiveError:
            # The store is going down: closing its handles writes what is buffered.
            return lambda: None

    async def _closing_done(self, session_id: SessionId) -> None:
        """Wait for a writer that is on its way out, so that closing and reopening just works."""
        writer = self._writers.get(session_id)
        if writer is not None and writer.retired:
            # Its failure is for whoever closed it, and reported there.
            with contextlib.suppress(Exception):
                await writer.close()

    def _open_writers(self) -> Sequence[SessionHandle]:
        return [writer for writer in self._writers.values() if writer is not None]

    async def _blocking(self, call: Callable[[], T]) -> T:
        return await anyio.to_thread.run_sync(call, limiter=self._limiter)

    def _on_event(self, event: SessionEventAppended) -> None:
        writer = self._writers.get(event.session.id)
        if writer is not None:
            writer.take(event.event)

    async def _on_flush(self, event: SessionFlush) -> None:
        writer = self._writers.get(event.session.id)
        if writer is not None:
            await _flush_open(writer)

    def _retire(self, event: SessionDisposed) -> None:
        writer = self._writers.get(event.session.id)
        if writer is not None:
            writer.retire()

    async def _on_disposed(self, event: SessionDisposed) -> None:
        writer = self._writers.get(event.session.id)
        if writer is not None:
            await writer.close()

    async def _close_all(self) -> None:
        self._unloaded = True
        handles = [*self._open_writers(), *self._readers]
        await _settle_all("closing sessions failed", handles, SessionHandle.close)


def _check_count(header: SessionHeader, count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ValueError(f"inherited_event_count is a non-negative integer, not {count!r}")
    if count and not header.is_seeded:
        raise ValueError(
            f"session {header.id!r} is not seeded, so inherited_event_count is 0, not {count!r}"
        )


async def _flush_open(handle: SessionHandle) -> None:
    try:
        await handle.flush()
    except SessionHandleClosedError:
        # Closing wrote what was pending, and whoever closed it got the failure.
        return


async def _settle_all(
    failure: str,
    handles: Sequence[SessionHandle],
    step: Callable[[SessionHandle], Awaitable[None]],
) -> None:
    """Do `step` for all of `handles`, side by side, and raise what failed as one group."""
    errors: list[Exception] = []

    async def one(handle: SessionHandle) -> None:
        try:
            await step(handle)
        except Exception as error:  # noqa: BLE001  # collected: one bad session never stops the others
            errors.append(error)

    async with anyio.create_task_group() as tasks:
        for handle in handles:
            tasks.start_soon(one, handle, name=f"session:{handle.id}")
    if errors:
        raise ExceptionGroup(failure, errors)
