"""What is known to be sound is not looked at again, and nothing else is taken for it."""

import msgspec
import pytest

from dsh_session import (
    CheckedLog,
    CheckedLogBuilder,
    EndSeed,
    InvalidEventError,
    InvalidLogError,
    Session,
    SessionEvent,
    SessionHeader,
    SessionId,
    TurnStart,
    encode_event,
)
from dsh_session import checked_log as module
from dsh_session.checks import check_event
from dsh_session.testing import append_turn, new_session

ID = SessionId("test")
PLAIN = SessionHeader(id=ID, created_at=0)


def events_of(turns: int) -> list[SessionEvent]:
    session = new_session()
    for turn in range(1, turns + 1):
        append_turn(session, turn)
    return list(session.events)


def read(events: list[SessionEvent]) -> CheckedLog:
    builder = CheckedLogBuilder()
    builder.decode(encode_event(event) for event in events)
    return builder.log


@pytest.fixture(name="checked")
def count_checks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seqs of all events that are checked behind their decoding."""
    seqs: list[int] = []

    def counting(event: SessionEvent) -> None:
        seqs.append(event.seq)
        check_event(event)

    monkeypatch.setattr(module, "check_event", counting)
    return seqs


def test_S169_what_was_checked_as_it_was_read_is_not_checked_again(checked: list[int]) -> None:
    events = events_of(3)
    log = read(events)
    session = Session.from_restore(ID, log, PLAIN)
    assert checked == [len(events)], "only the new marker"
    assert list(session.events[: len(log)]) == list(log)
    assert session.event_at(0) is log[0]


def test_S13_S169_what_continues_a_checked_log_is_checked(checked: list[int]) -> None:
    events = events_of(2)
    log = read(events[:-2]).extended(events[-2:])
    assert checked == [len(events) - 2, len(events) - 1]
    assert list(log) == events


def test_S13_a_list_of_events_is_checked_whoever_made_it(checked: list[int]) -> None:
    events = events_of(2)
    Session.from_restore(ID, events, PLAIN)
    assert checked == list(range(len(events) + 1))
    broken = [*events[:-1], msgspec.structs.replace(events[-1], time=True)]
    with pytest.raises(InvalidEventError, match="time must be an integer"):
        Session.from_restore(ID, broken, PLAIN)
    with pytest.raises(InvalidEventError, match="time must be an integer"):
        CheckedLog.of(broken)
    with pytest.raises(InvalidEventError, match="stands at index 1"):
        CheckedLog().extended([events[0], events[2]])


def test_S13_the_events_of_a_session_are_a_list_like_any_other(checked: list[int]) -> None:
    session = new_session()
    append_turn(session, 1)
    Session.from_restore(ID, session.events, PLAIN)
    assert checked == list(range(session.seq + 1))


def test_S35_a_checked_log_stays_as_it_was_taken() -> None:
    events = events_of(1)
    builder = CheckedLogBuilder()
    builder.take(events[0])
    first = builder.log
    longer = first.extended(events[1:])
    builder.take(events[1])
    assert list(first) == events[:1]
    assert list(longer) == events
    assert list(reversed(longer)) == events[::-1]


def test_S13_rows_before_a_refused_one_are_taken() -> None:
    rows = [encode_event(event) for event in events_of(1)]
    builder = CheckedLogBuilder()
    with pytest.raises(InvalidEventError, match="expected seq 2"):
        builder.decode([rows[0], rows[1], rows[3]])
    assert len(builder) == len(builder.log) == 2

    def refuse(event: SessionEvent) -> None:
        raise InvalidLogError("not here", seq=event.seq)

    with pytest.raises(InvalidLogError, match="not here"):
        builder.decode(rows[2:], refuse)
    assert len(builder) == 2


@pytest.mark.parametrize("by_row", [True, False])
def test_S132_a_checked_log_knows_its_cut(by_row: bool) -> None:
    events = [TurnStart(turn=1), EndSeed(inherited=True), EndSeed()]
    numbered = [
        SessionEvent(type=data.type, seq=seq, time=0, data=data) for seq, data in enumerate(events)
    ]
    log = read(numbered) if by_row else CheckedLog.of(numbered)
    assert log.cut == log.extended([]).cut == 1
    assert CheckedLog.of(numbered[:1]).cut is None
    with pytest.raises(InvalidLogError, match="not seeded but has"):
        Session.from_restore(ID, log, PLAIN)
