"""What a session may begin with, and the marker that ends it."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from dsh_brand import NotJsonError
from dsh_session._freeze import freeze_payload
from dsh_session.checked_log import CheckedLog
from dsh_session.codec import event_from_json
from dsh_session.errors import InvalidEventError, InvalidHeaderError, InvalidLogError
from dsh_session.events import EndSeed, SessionEvent
from dsh_session.header import SessionHeader, SessionId
from dsh_session.integers import is_natural


def snapshot_event(event: SessionEvent | Mapping[str, object]) -> SessionEvent:
    """A deeply frozen event of its own from one that is borrowed."""
    if not isinstance(event, SessionEvent):
        return event_from_json(event)
    try:
        data = freeze_payload(event.data)
    except NotJsonError as error:
        raise InvalidEventError(
            str(error), event_type=event.type, seq=event.seq, cause=error
        ) from None
    cited = event.source_event_seqs
    if data is event.data and (cited is None or type(cited) is tuple):
        return event
    cited = None if cited is None else tuple(cited)
    return msgspec.structs.replace(event, data=data, source_event_seqs=cited)


def is_marker(event: SessionEvent, *, tagged: bool = False) -> bool:
    """True for an end-seed marker, if `tagged` for one that marks a fork's cut."""
    return isinstance(event.data, EndSeed) and (not tagged or event.data.inherited is True)


def marker_at(seq: int, time: int, *, inherited: bool = False) -> SessionEvent:
    """A marker for that place."""
    data = EndSeed(inherited=True if inherited else None)
    return SessionEvent(type=data.type, seq=seq, time=time, data=data)


def check_id(session_id: SessionId, header: SessionHeader) -> None:
    """Raise if the header belongs to another session."""
    if session_id != header.id:
        raise InvalidHeaderError(f"session {session_id!r} cannot have a header of {header.id!r}")


def last_cut(events: Sequence[SessionEvent]) -> int | None:
    """Seq of the last tagged marker: the length of the fork prefix."""
    if isinstance(events, CheckedLog):
        return events.cut
    for event in reversed(events):
        # The name first: few events of a log have it.
        if event.type == EndSeed.type and is_marker(event, tagged=True):
            return event.seq
    return None


def check_seed(header: SessionHeader, seed: Sequence[SessionEvent] | None, count: int) -> None:
    """Raise if a new session of this header cannot begin with this seed.

    Raises:
        InvalidLogError: See the message.
    """
    _check_count(header, count)
    if not header.is_seeded:
        cut = None if seed is None else last_cut(seed)
        if cut is not None:
            reason = "a tagged marker in the seed needs a seeded header and its inherited count"
            raise InvalidLogError(reason, seq=cut)
        return
    if seed is None:
        raise InvalidLogError("a seeded session needs its seed, if only an empty list")
    if count > len(seed):
        raise InvalidLogError(f"inherited count {count} is beyond a seed of {len(seed)} events")
    if count < len(seed):
        if not is_marker(seed[count], tagged=True):
            reason = f"the seed goes on behind its {count} inherited events without a tagged marker"
            raise InvalidLogError(reason, seq=count)
        if last_cut(seed) != count:
            raise InvalidLogError("no tagged marker may follow the cut", seq=last_cut(seed))


def complete_seed(
    header: SessionHeader,
    seed: Sequence[SessionEvent] | None,
    count: int,
    now_ms: Callable[[], int],
) -> tuple[list[SessionEvent], int]:
    """The events of a new session, with its marker, and where its own life begins."""
    events = [] if seed is None else list(seed)
    if header.is_seeded:
        if len(events) == count:
            events.append(marker_at(count, now_ms(), inherited=True))
        return events, count
    if seed is not None and not (events and is_marker(events[-1])):
        events.append(marker_at(len(events), now_ms()))
    return events, len(seed or ())


def check_restored(header: SessionHeader, events: Sequence[SessionEvent], count: int) -> None:
    """Raise if a stored log does not fit its header and count.

    Raises:
        InvalidLogError: See the message.
    """
    _check_count(header, count)
    cut = last_cut(events)
    if header.is_seeded != (cut is not None):
        reason = "is seeded without" if header.is_seeded else "is not seeded but has"
        raise InvalidLogError(f"the session {reason} a tagged marker", seq=cut)
    if cut is not None and cut != count:
        raise InvalidLogError(f"the last tagged marker is not at inherited count {count}", seq=cut)


def _check_count(header: SessionHeader, count: int) -> None:
    if not is_natural(count):
        raise InvalidLogError(f"inherited count must be a non-negative integer, not {count!r}")
    if not header.is_seeded and count != 0:
        raise InvalidLogError(f"inherited count {count} needs a header that is seeded")
