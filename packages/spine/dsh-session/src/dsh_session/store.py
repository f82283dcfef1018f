"""`ctx.sessions`: the sessions of this process that others can find and follow.

Upstream: packages/session/session/src/index.ts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, Literal, TypeAlias

import msgspec

from dsh_cordis import Context, Handle, Service, Target, scope_of
from dsh_session.closers import build_fork_seed
from dsh_session.errors import SessionForkError, SessionStateError
from dsh_session.events import SessionEvent
from dsh_session.header import SessionHeader, SessionId
from dsh_session.integers import is_natural
from dsh_session.lifecycle import (
    SessionCreated,
    SessionDisposed,
    SessionEventAppended,
    SessionFlush,
)
from dsh_session.message_projections import MessageProjections, SessionMessageProjection
from dsh_session.session import Session, system_now_ms


class SessionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of `SessionStore`."""

    now_ms: Callable[[], int] = system_now_ms
    """The clock that stamps events, in Unix epoch milliseconds."""


class SessionMeta(msgspec.Struct, frozen=True, kw_only=True):
    """What a creator says about a new session; the store adds id and version."""

    cwd: str | None = None
    parent_session: SessionId | None = None
    created_at: int | None = None
    """Unix epoch milliseconds; now by default."""
    is_seeded: bool = False
    origin: Literal["subagent"] | None = None
    delegation_depth: int | None = None
    agent_preset: str | None = None


class RestoredLog(msgspec.Struct, frozen=True, kw_only=True):
    """A stored session: its header, all its events, the length of its fork prefix."""

    header: SessionHeader
    events: Sequence[SessionEvent]
    """Checked when the session is prepared, unless it is a `CheckedLog`."""
    inherited_event_count: int = 0


# A name, as a nested function evaluates its annotations at each call.
_Undo: TypeAlias = Callable[[], None]

SessionGuard: TypeAlias = Callable[[Session, SessionEvent], None]
"""Looks at an event that is about to be appended to a live session, and raises to refuse it."""


class _Entry:
    """One live session: where it announces, and how far it is."""

    def __init__(
        self, store: "SessionStore", session: Session, home: Context, scope: object | None
    ) -> None:
        self.store = store
        self.session = session
        self.home = home
        self.scope = scope
        self.target = Target(scope)
        self.announced = False
        self.announcing = False
        self.leaving = False
        self.handle: Handle | None = None

    def admit(self, session: Session, event: SessionEvent) -> Callable[[], None]:
        for guard in self.store.guards():
            guard(session, event)
        appended = SessionEventAppended(session=session, event=event)
        return self.home.prepare_emit(appended, target=self.target)


class SessionStore(Service):
    """`ctx.sessions`: creates sessions, keeps the live ones, announces what happens to them.

    What is created or entered through a context belongs to it: it leaves the store when that
    context's plugin goes down, and its events go to the listeners of that context's scope.
    """

    key: ClassVar[str] = "sessions"

    def __init__(self, ctx: Context, config: SessionConfig | None = None) -> None:
        super().__init__(ctx)
        if config is not None and not isinstance(config, SessionConfig):
            raise TypeError(f"sessions are configured by a SessionConfig, not by {config!r}")
        self._now_ms = (config or SessionConfig()).now_ms
        self._home = ctx
        self._live: dict[SessionId, _Entry] = {}
        self._minted = 0
        self._guards: dict[object, SessionGuard] = {}
        self._guard_order: Sequence[SessionGuard] = ()
        self._projections = MessageProjections()
        ctx.effect(lambda: self._close, label="live sessions")

    def guard(self, guard: SessionGuard) -> Handle:
        """Ask `guard` before each append to a live session. An effect of the calling context.

        It is called last, when nothing but it can refuse the event, and must not append itself.
        What it raises is raised to the one who appends; the log is as before.
        """
        key = object()  # the same function may be registered twice

        def begin() -> Callable[[], None]:
            self._guards[key] = guard
            self._guard_order = tuple(self._guards.values())

            def end() -> None:
                self._guards.pop(key, None)
                self._guard_order = tuple(self._guards.values())

            return end

        return self.ctx.effect(begin, label="session guard")

    def guards(self) -> Sequence[SessionGuard]:
        """The guards, in the order of their registration."""
        return self._guard_order

    def register_message_projection(self, definition: SessionMessageProjection) -> Handle:
        """Say what an event type does to the messages before it. An effect of the calling context.

        Without it such an event is refused by every session of this store; once it is gone, the
        history of a session with such events cannot be derived.

        Raises:
            ValueError: Its type has a definition, or no payload class that says it projects.
        """
        return self.ctx.effect(
            lambda: self._projections.add(definition),
            label=f"message projection {definition.type}",
        )

    def prepare(
        self,
        id: SessionId | None = None,  # noqa: A002  # the name of the header's key
        *,
        seed: Iterable[SessionEvent | Mapping[str, object]] | None = None,
        inherited_event_count: int = 0,
        meta: SessionMeta | None = None,
        restored: RestoredLog | None = None,
    ) -> Session:
        """Build a session without entering it.

        Args:
            id: Its id; `session-<n>` by default.
            seed: Events it begins with.
            inherited_event_count: Length of the seed's fork prefix, with `meta.is_seeded`.
            meta: What its header says.
            restored: A stored session instead of all the above; its header has the id.

        Raises:
            SessionStateError: The id is live.
            InvalidEventError: An event breaks a rule.
            UnsupportedEventError: An event changes messages, and its projection is not registered.
            InvalidLogError: Seed, header and count do not fit.
        """
        if restored is not None:
            self._check_free(restored.header.id)
            return Session.from_restore(
                restored.header.id,
                restored.events,
                restored.header,
                restored.inherited_event_count,
                projections=self._projections,
                now_ms=self._now_ms,
            )
        session_id = self._mint() if id is None else id
        self._check_free(session_id)
        return Session.create(
            session_id,
            seed,
            self._header(session_id, meta or SessionMeta()),
            inherited_event_count,
            projections=self._projections,
            now_ms=self._now_ms,
        )

    def enter(self, session: Session) -> Handle:
        """Make a session live; the handle detaches it. An effect of the calling context.

        A detached session still appends, and nobody is told. Detaching inside an append or an
        announcement takes effect at its end.

        Raises:
            SessionStateError: The id is live, or the session is in a store already.
        """
        self._check_free(session.id)
        if session.observer is not None:
            raise SessionStateError(
                f"session {session.id!r} is in a store already: detach it first", "SESSION_ATTACHED"
            )
        entry = _Entry(self, session, self._home, scope_of(self.ctx))

        def attach() -> _Undo:
            self._live[session.id] = entry
            session.observer = entry
            return lambda: self._detach(entry)

        entry.handle = self.ctx.effect(attach, label=f"session {session.id}")
        return entry.handle

    def announce(self, session: Session) -> None:
        """Emit `session/created`, once. If a listener vetoes, the session is detached again.

        Raises:
            SessionStateError: Not live, or announced already.
            Exception: What a listener raised to veto.
        """
        entry = self._entry(session)
        if entry.announced:
            raise SessionStateError(
                f"session {session.id!r} was announced already", "SESSION_ANNOUNCED"
            )
        entry.announced = entry.announcing = True
        vetoed = True
        try:
            self._home.emit(SessionCreated(session=session), target=entry.target)
            vetoed = False
        finally:
            entry.announcing = False
            if entry.leaving:
                self._detach(entry)
            elif vetoed and entry.handle is not None:
                entry.handle()

    def create(
        self,
        id: SessionId | None = None,  # noqa: A002  # the name of the header's key
        *,
        seed: Iterable[SessionEvent | Mapping[str, object]] | None = None,
        inherited_event_count: int = 0,
        meta: SessionMeta | None = None,
    ) -> Session:
        """`prepare`, `enter` and `announce` in one; an effect of the calling context.

        Raises:
            SessionStateError: The id is live.
            Exception: What a listener raised to veto; no session stays behind.
        """
        session = self.prepare(
            id, seed=seed, inherited_event_count=inherited_event_count, meta=meta
        )
        self.enter(session)
        self.announce(session)
        return session

    def fork(
        self,
        source: Session | SessionId,
        boundary: int | None = None,
        child_id: SessionId | None = None,
    ) -> Session:
        """A new live session that begins with a copy of another one's history.

        Args:
            source: A live session, or its id.
            boundary: Seq of the last event that the child inherits; the last one by default.
            child_id: Id of the child.

        Raises:
            SessionForkError: `code` tells why; nothing was created.
        """
        parent = self._fork_source(source, child_id)
        last = parent.seq - 1 if boundary is None else boundary
        if boundary is not None and not (is_natural(boundary) and boundary < parent.seq):
            raise SessionForkError(
                f"boundary {boundary!r} is no seq of session {parent.id!r} with {parent.seq} "
                "events: name the last event to inherit",
                "INVALID_BOUNDARY",
            )
        seed = build_fork_seed(parent.events, last) if parent.seq else []
        meta = SessionMeta(cwd=parent.header.cwd, parent_session=parent.id, is_seeded=True)
        return self.create(child_id, seed=seed, inherited_event_count=last + 1, meta=meta)

    def get(self, id: SessionId) -> Session | None:  # noqa: A002  # as in create
        """The live session of that id."""
        entry = self._live.get(id)
        return None if entry is None else entry.session

    def list(self) -> list[Session]:
        """The live sessions, in the order in which they were entered."""
        return [entry.session for entry in self._live.values()]

    async def flush(self, session: Session) -> bool:
        """Have every keeper of the session's log make it durable, and wait for all.

        Returns:
            Whether anybody keeps it; a listener registered `everywhere` takes part uncounted.

        Raises:
            SessionStateError: The session is not live.
            Exception: What the first keeper, in the order of registration, failed with.
        """
        entry = self._entry(session)
        taken: set[Context] = set()

        def admits(ctx: Context) -> bool:
            taken.add(ctx)
            return True

        failures: Sequence[Exception] = ()
        try:
            await self._home.parallel(
                SessionFlush(session=session), target=Target(entry.scope, admits)
            )
        except ExceptionGroup as group:
            failures = group.exceptions
        for other in failures[1:]:
            self._home.log.error("session.flush_failed", session=session.id, error=str(other))
        if failures:
            raise failures[0]
        return bool(taken)

    def _fork_source(self, source: Session | SessionId, child_id: SessionId | None) -> Session:
        if child_id is not None and child_id in self._live:
            raise SessionForkError(
                f"session {child_id!r} is live already: choose another id for the fork",
                "SESSION_ALREADY_EXISTS",
            )
        source_id = source.id if isinstance(source, Session) else source
        entry = self._live.get(source_id)
        if entry is None:
            raise SessionForkError(f"no live session {source_id!r} to fork", "SESSION_NOT_FOUND")
        if isinstance(source, Session) and entry.session is not source:
            raise SessionForkError(
                f"session {source_id!r} is live as another object: fork that one",
                "SESSION_NOT_LIVE",
            )
        return entry.session

    def _header(self, session_id: SessionId, meta: SessionMeta) -> SessionHeader:
        return SessionHeader(
            id=session_id,
            created_at=self._now_ms() if meta.created_at is None else meta.created_at,
            is_seeded=meta.is_seeded,
            cwd=meta.cwd,
            parent_session=meta.parent_session,
            origin=meta.origin,
            delegation_depth=meta.delegation_depth,
            agent_preset=meta.agent_preset,
        )

    def _mint(self) -> SessionId:
        while True:
            self._minted += 1
            session_id = SessionId(f"session-{self._minted}")
            if session_id not in self._live:
                return session_id

    def _check_free(self, session_id: SessionId) -> None:
        if session_id in self._live:
            raise SessionStateError(
                f"session {session_id!r} is live already: dispose it first, or use another id",
                "SESSION_ALREADY_EXISTS",
            )

    def _entry(self, session: Session) -> _Entry:
        entry = self._live.get(session.id)
        if entry is None or entry.session is not session:
            raise SessionStateError(
                f"session {session.id!r} is not live: enter it first", "SESSION_NOT_LIVE"
            )
        return entry

    def _detach(self, entry: _Entry) -> None:
        if entry.announcing:
            entry.leaving = True
            return
        session = entry.session
        if self._live.get(session.id) is not entry or session.defer(lambda: self._detach(entry)):
            return
        del self._live[session.id]
        session.observer = None
        if entry.announced:
            self._home.emit(SessionDisposed(session=session), target=entry.target)

    def _close(self) -> None:
        for entry in reversed(list(self._live.values())):
            self._detach(entry)
