"""What the store announces. Upstream: packages/session/session/src/index.ts (events)."""

from typing import ClassVar

from dsh_cordis import Emit, Parallel
from dsh_session.events import SessionEvent
from dsh_session.session import Session


class SessionCreated(Emit, frozen=True):
    """A session is live. A listener that raises vetoes it: the session is disposed again."""

    name: ClassVar[str] = "session/created"
    vetoing: ClassVar[bool] = True
    session: Session
    """The session, already listed."""


class SessionEventAppended(Emit, frozen=True):
    """An event was appended to a live session, and is in its log already.

    Sent inside the append, so a listener may append to other sessions only; an async listener runs
    after the append and may do as it likes. Seed events and markers are not announced.
    """

    name: ClassVar[str] = "session/event"
    session: Session
    """The session that grew."""
    event: SessionEvent
    """The event, committed."""


class SessionDisposed(Emit, frozen=True):
    """A session that was announced is live no more; its log stays readable."""

    name: ClassVar[str] = "session/disposed"
    session: Session
    """The session, listed no more."""


class SessionFlush(Parallel, frozen=True):
    """Make the session's log durable now. Dispatched by `SessionStore.flush` only."""

    name: ClassVar[str] = "session/flush"
    session: Session
    """The session whose log is to be made durable."""
