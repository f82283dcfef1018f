"""Append, the views of a log, seeds, markers and restore (S31-S36, S48-S52, S69-S77)."""

from typing import Any

import msgspec
import pytest

from dsh_brand import FrozenDict
from dsh_session import (
    EndSeed,
    InvalidEventError,
    InvalidHeaderError,
    InvalidLogError,
    RawData,
    ReplaceOp,
    Session,
    SessionEvent,
    SessionHeader,
    SessionId,
    SurfaceError,
    SystemMessageEvent,
    TurnStart,
    UserMessageEvent,
    derive_event_message,
    event_to_json,
    snapshot_session_event,
)
from dsh_session.testing import (
    append_turn,
    counting_clock,
    new_session,
    system_message,
    user_message,
)

ID = SessionId("test")
SEEDED = SessionHeader(id=ID, created_at=0, is_seeded=True)
PLAIN = SessionHeader(id=ID, created_at=0)


def turns(count: int) -> list[SessionEvent]:
    session = new_session()
    for turn in range(1, count + 1):
        append_turn(session, turn)
    return list(session.events)


def marker(seq: int, *, tagged: bool = False) -> SessionEvent:
    data = EndSeed(inherited=tagged or None)
    return SessionEvent(type=data.type, seq=seq, time=0, data=data)


def test_S31_append_stores_a_detached_frozen_snapshot() -> None:
    session, data = new_session(), {"a": [1]}
    event = session.append("x/y", data)
    data["a"].append(2)
    assert event_to_json(event)["data"] == {"a": [1]}
    assert session.events[0] is event


def test_S31_frozen_payloads_are_stored_by_identity() -> None:
    session, message = new_session(), user_message()
    payload = UserMessageEvent(message=message)
    event = session.append(payload, surface_op="append")
    assert event.data is payload
    assert session.derive_messages()[0] is message


def test_S32_a_refused_append_changes_nothing() -> None:
    session = new_session()
    append_turn(session, 1)
    view, nodes = session.events, list(session.surface.nodes)
    with pytest.raises(SurfaceError):
        session.append(
            UserMessageEvent(message=user_message(id="x")),
            surface_op=ReplaceOp(start_seq=0, end_seq=0),
            source_event_seqs=(0,),
        )
    with pytest.raises(InvalidEventError):
        session.append(UserMessageEvent(message=user_message()))
    assert session.events is view
    assert list(session.surface.nodes) == nodes
    assert session.append(TurnStart(turn=2)).seq == len(view)


def test_S33_unknown_types_are_raw_and_log_only() -> None:
    session = new_session()
    event = session.append("acme/thing", {"a": 1}, ignorable=True)
    assert event.data == RawData(FrozenDict.__new__(FrozenDict) | {"a": 1})
    assert event.ignorable
    with pytest.raises(InvalidEventError, match="log-only"):
        session.append("acme/thing", 1, surface_op="append")


def test_S31_a_type_name_and_data_give_the_typed_payload() -> None:
    session = new_session()
    assert session.append("turn/start", {"turn": 1}).data == TurnStart(turn=1)
    with pytest.raises(InvalidEventError):
        session.append("user/message", {"id": "m"}, surface_op="append")
    with pytest.raises(InvalidEventError, match="neither a payload"):
        session.append(7)  # type: ignore[arg-type]  # what is tested
    with pytest.raises(InvalidEventError, match="data goes with"):
        session.append(TurnStart(turn=1), {"turn": 1})


def test_S35_events_are_fixed_when_taken() -> None:
    session = new_session()
    session.append(TurnStart(turn=1))
    taken = session.events
    assert session.events is taken
    session.append("x/y", 1)
    assert (len(taken), len(session.events), session.seq) == (1, 2, 2)
    assert [event.seq for event in session.events] == [0, 1]
    assert session.events[-1].type == "x/y"
    assert session.events[::-1][0].seq == 1
    with pytest.raises(IndexError):
        taken[1]
    with pytest.raises(IndexError):
        session.event_at(2)
    assert list(taken) == [session.event_at(0)]


def test_S36_nothing_reachable_can_be_changed() -> None:
    session = new_session()
    event = session.append("x/y", {"a": [1]})
    assert isinstance(event.data, RawData)
    with pytest.raises(AttributeError):
        event.seq = 5  # type: ignore[misc]  # what is tested
    with pytest.raises(TypeError):
        event.data.json["b"] = 1  # type: ignore[index]  # what is tested
    with pytest.raises(TypeError):
        event.data.json["a"].append(1)  # type: ignore[index, call-overload, union-attr]  # what is tested
    with pytest.raises(TypeError):
        session.events[0] = event  # type: ignore[index]  # what is tested


def test_S48_S51_derivation_passes_messages_through() -> None:
    session = new_session()
    append_turn(session, 1)
    first = session.derive_messages()
    again = session.derive_messages()
    assert first == again
    assert first is not again
    assert [message.role for message in first] == ["system", "user", "assistant", "tool"]
    append_turn(session, 2)
    grown = session.derive_messages()
    assert len(first) == 4
    assert all(a is b for a, b in zip(first, grown, strict=False))
    assert [
        session.derive_event_message(session.event_at(seq)) for seq in session.surface.nodes
    ] == grown
    assert session.derive_messages(4) == grown[4:]
    assert session.derive_messages(len(grown)) == []


def test_S48_empty_prompts_yield_no_message_and_keep_their_place() -> None:
    session = new_session()
    data = SystemMessageEvent(turn=1, step=1, message=system_message(""))
    event = session.append(data, surface_op="append")
    session.append(UserMessageEvent(message=user_message()), surface_op="append")
    assert derive_event_message(event) is None
    assert [message.id for message in session.derive_messages()] == ["u"]
    head = SystemMessageEvent(turn=1, step=1, message=system_message("now"))
    session.append(head, surface_op=ReplaceOp(start_seq=0, end_seq=0), source_event_seqs=(0,))
    assert [message.id for message in session.derive_messages()] == ["s", "u"]


def test_S69_seeds_are_checked_and_errors_name_the_index() -> None:
    events = turns(1)
    with pytest.raises(InvalidEventError, match="at index 1"):
        Session.create(ID, [events[0], events[2]])
    with pytest.raises(InvalidHeaderError):
        Session.create(SessionId("other"), header=PLAIN)
    session = Session.create(ID, [event_to_json(event) for event in events], PLAIN)
    assert list(session.events)[:-1] == events


def test_S69_seed_objects_are_copied_where_they_could_change() -> None:
    data: dict[str, Any] = {"a": [1]}  # JSON
    borrowed = SessionEvent(type="x/y", seq=0, time=0, data=RawData(data))
    session = Session.create(ID, [borrowed])
    data["a"].append(2)
    assert event_to_json(session.events[0])["data"] == {"a": [1]}
    assert snapshot_session_event(event_to_json(session.events[0])) == session.events[0]


def test_S73_without_a_seed_there_is_no_marker() -> None:
    assert Session.create(ID).seq == 0


@pytest.mark.parametrize(
    ("seed", "ends"),
    [
        pytest.param([], [(0, None)], id="empty"),
        pytest.param(turns(1), [(len(turns(1)), None)], id="events"),
        pytest.param([marker(0)], [(0, None)], id="marker-already"),
    ],
)
def test_S73_a_given_seed_ends_with_a_marker(
    seed: list[SessionEvent], ends: list[tuple[int, None]]
) -> None:
    session = Session.create(ID, seed)
    found = [(e.seq, e.data.inherited) for e in session.events if isinstance(e.data, EndSeed)]
    assert found == ends
    assert session.first_live_seq == session.first_lifecycle_seq == len(seed)


def test_S73_a_seeded_creation_gets_its_cut() -> None:
    prefix = turns(1)
    count = len(prefix)
    session = Session.create(ID, prefix, SEEDED, count, now_ms=counting_clock())
    assert session.events[count].data == EndSeed(inherited=True)
    assert (session.inherited_event_count, session.first_lifecycle_seq) == (count, count)
    assert session.own_events() == session.events[count:]
    assert not session.is_own_seq(count - 1)
    assert session.is_own_seq(count)
    with_marker = Session.create(ID, [*prefix, marker(count, tagged=True)], SEEDED, count)
    assert with_marker.seq == count + 1
    assert with_marker.first_live_seq == count + 1


def test_S73_an_ancestors_marker_at_the_end_is_none_of_ours() -> None:
    prefix = [*turns(1), marker(len(turns(1)), tagged=True)]
    session = Session.create(ID, prefix, SEEDED, len(prefix))
    assert session.events[-1].seq == len(prefix)
    assert session.inherited_event_count == len(prefix)


@pytest.mark.parametrize(
    ("header", "seed", "count"),
    [
        pytest.param(SEEDED, None, 0, id="seeded-without-seed"),
        pytest.param(SEEDED, turns(1), 99, id="count-beyond-seed"),
        pytest.param(SEEDED, turns(1), 2, id="no-marker-at-the-cut"),
        pytest.param(
            SEEDED, [marker(0, tagged=True), marker(1, tagged=True)], 0, id="later-marker"
        ),
        pytest.param(PLAIN, turns(1), 1, id="count-without-seeded"),
        pytest.param(PLAIN, [marker(0, tagged=True)], 0, id="marker-without-seeded"),
        pytest.param(SEEDED, [], True, id="boolean-count"),
    ],
)
def test_S74_impossible_seeds_are_refused(
    header: SessionHeader, seed: list[SessionEvent] | None, count: int
) -> None:
    with pytest.raises(InvalidLogError):
        Session.create(ID, seed, header, count)


def test_S72_restore_marks_the_pick_up_and_copies_nothing() -> None:
    events = turns(1)
    session = Session.from_restore(ID, events, PLAIN)
    assert all(a is b for a, b in zip(events, session.events, strict=False))
    assert session.events[-1].data == EndSeed()
    again = Session.from_restore(ID, session.events, PLAIN)
    assert again.seq == session.seq
    assert again.first_live_seq == again.first_lifecycle_seq == session.seq


def test_S132_restore_refuses_a_cut_that_does_not_fit() -> None:
    cut = [*turns(1), marker(len(turns(1)), tagged=True)]
    with pytest.raises(InvalidLogError, match="not seeded but has"):
        Session.from_restore(ID, cut, PLAIN)
    with pytest.raises(InvalidLogError, match="seeded without"):
        Session.from_restore(ID, turns(1), SEEDED)
    with pytest.raises(InvalidLogError, match="inherited count 3"):
        Session.from_restore(ID, cut, SEEDED, 3)


def test_S73_nobody_appends_a_tagged_marker() -> None:
    with pytest.raises(InvalidEventError, match="forking"):
        new_session().append(EndSeed(inherited=True))


def test_S36_a_changed_copy_is_legal() -> None:
    event = new_session().append(TurnStart(turn=1))
    assert msgspec.structs.replace(event, seq=5).seq == 5
