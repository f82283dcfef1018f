"""Closers, forks' seeds, recovery and the rules of whole logs (S80-S89, S128)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_brand import json_equal
from dsh_llm import request_repairs
from dsh_session import (
    AssistantMessageEvent,
    EndSeed,
    Forked,
    InvalidLogError,
    RequestContext,
    Session,
    SessionEvent,
    SessionHeader,
    SessionId,
    StepEnd,
    StepStart,
    ToolCallEvent,
    ToolCallRecovery,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
    build_fork_seed,
    check_turns,
    event_from_json,
    event_to_json,
    interrupted_turn_closers,
)
from dsh_session.testing import (
    append_turn,
    assistant_message,
    new_session,
    tool_message,
    user_message,
)


def full_log(turns: int = 2, calls: tuple[str, ...] = ("c", "d")) -> Session:
    session = new_session()
    for turn in range(1, turns + 1):
        append_turn(session, turn, calls=calls)
    return session


def test_S83_nothing_is_open_nothing_is_closed() -> None:
    assert interrupted_turn_closers([]) == []
    assert interrupted_turn_closers(full_log().events) == []


@given(st.integers(0, 40), st.sampled_from([(), ("c",), ("c", "d", "e")]))
def test_S83_S85_closers_make_every_cut_whole(cut: int, calls: tuple[str, ...]) -> None:
    events = list(full_log(3, calls).events)[:cut]
    closers = interrupted_turn_closers(events)
    assert closers == interrupted_turn_closers(tuple(events))
    whole = [*events, *closers]
    assert [event.seq for event in whole] == list(range(len(whole)))
    check_turns(whole)
    assert interrupted_turn_closers(whole) == []
    header = SessionHeader(id=SessionId("test"), created_at=0)
    session = Session.from_restore(header.id, whole, header)
    assert not request_repairs(session.derive_messages())
    for event in closers:
        assert event.time == events[-1].time
        assert event_from_json(event_to_json(event)) == event


def open_step(*calls: str) -> Session:
    session = new_session()
    session.append(TurnStart(turn=1))
    session.append(StepStart(turn=1, step=1))
    session.append(UserMessageEvent(message=user_message()), surface_op="append")
    message = assistant_message(calls=calls)
    data = AssistantMessageEvent(turn=1, step=1, message=message, stream=())
    session.append(data, surface_op="append")
    return session


def started(session: Session, call: str) -> int:
    data = ToolCallEvent(turn=1, step=1, call_id=call, name="echo", arguments="{}")  # type: ignore[arg-type]  # a branded id
    return session.append(data).seq


def test_S84_S86_each_open_call_gets_its_result() -> None:
    session = open_step("a", "b", "c")
    started(session, "unheard-of")
    first = started(session, "b")
    second = started(session, "b")
    answer = ToolResultEvent(turn=1, step=1, message=tool_message("c"))
    session.append(answer, surface_op="append")
    results = [e for e in interrupted_turn_closers(session.events) if e.type == "tool/result"]
    found = [event_to_json(event) for event in results]
    assert [row.get("sourceEventSeqs") for row in found] == [None, [second]]
    assert first < second
    assert found[0]["data"] == {
        "turn": 1,
        "step": 1,
        "message": {
            "id": f"interrupted-tool-result-a-{session.seq}",
            "role": "tool",
            "source": {"kind": "tool", "callId": "a"},
            "toolCallId": "a",
            "content": [
                {
                    "type": "text",
                    "text": "The tool call was interrupted before the Harness recorded it as "
                    "started. Retry it if it is still needed.",
                }
            ],
            "isError": True,
        },
        "error": {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"},
    }
    assert "outcome is unknown" in str(found[1]["data"])


def test_S84_a_call_behind_its_step_end_is_given_up() -> None:
    session = open_step("a")
    session.append(StepEnd(turn=1, step=1))
    assert [event.type for event in interrupted_turn_closers(session.events)] == ["turn/end"]


def test_S84_a_result_of_another_step_answers_nothing() -> None:
    session = open_step("a")
    answer = ToolResultEvent(turn=1, step=2, message=tool_message("a"))
    session.append(answer, surface_op="append")
    assert interrupted_turn_closers(session.events)[0].type == "tool/result"


def test_S88_live_recovery_gives_results_to_append() -> None:
    session, recovery = open_step("a", "b"), ToolCallRecovery()
    for event in session.events:
        recovery.observe(event)
    recovery.observe(session.event_at(started(session, "a")))
    assert list(recovery.pending) == ["a", "b"]
    for result in recovery.results(session.seq):
        event = session.append(
            result.data, surface_op="append", source_event_seqs=result.source_event_seqs
        )
        recovery.observe(event)
        assert result.data.message.id.endswith(f"-{event.seq}")
    assert not recovery.pending
    session.append(StepEnd(turn=1, step=1))
    closers = interrupted_turn_closers(session.events)
    assert [event.type for event in closers] == ["turn/end"]


def test_S80_a_fork_seed_is_prefix_marker_and_closers() -> None:
    session = open_step("a")
    boundary = session.seq - 1
    seed = build_fork_seed(session.events, boundary)
    assert all(a is b for a, b in zip(seed, session.events, strict=False))
    assert [event.type for event in seed[boundary + 1 :]] == [
        "session/end-seed",
        "tool/result",
        "step/end",
        "turn/end",
    ]
    assert seed[boundary + 1].data == EndSeed(inherited=True)
    assert {event.time for event in seed[boundary:]} == {session.event_at(boundary).time}
    assert isinstance(seed[-1].data, TurnEnd)
    assert seed[-1].data.reason == Forked()
    assert "parent session" in str(event_to_json(seed[boundary + 2]))
    closed = build_fork_seed(full_log().events, 3)
    assert closed[-1].type == "turn/end"
    with pytest.raises(ValueError, match="boundary"):
        build_fork_seed(session.events, 99)


@given(st.integers(0, 30))
def test_S80_S74_every_cut_seeds_a_valid_child(boundary: int) -> None:
    events = full_log(3).events
    boundary %= len(events)
    seed = build_fork_seed(events, boundary)
    header = SessionHeader(id=SessionId("child"), created_at=0, is_seeded=True)
    child = Session.create(header.id, seed, header, boundary + 1)
    check_turns(child.events)
    assert child.inherited_event_count == boundary + 1
    again = Session.from_restore(header.id, child.events, header, boundary + 1)
    assert json_equal(
        [event_to_json(e) for e in again.events[: child.seq]],
        [event_to_json(e) for e in child.events],
    )


def logged(*data: object) -> list[SessionEvent]:
    session = new_session()
    for item in data:
        if isinstance(item, str):
            session.append(item, {})
        else:
            session.append(item, surface_op="append" if item.surface else None)  # type: ignore[attr-defined, arg-type]  # payloads, by position
    return list(session.events)


END = {"reason": {"kind": "completed"}}


@pytest.mark.parametrize(
    "data",
    [
        pytest.param((TurnStart(turn=2),), id="first-turn-is-1"),
        pytest.param((TurnStart(turn=1), TurnStart(turn=2)), id="overlap"),
        pytest.param((TurnStart(turn=1), StepStart(turn=1, step=2)), id="first-step-is-1"),
        pytest.param((StepStart(turn=1, step=1),), id="step-outside-a-turn"),
        pytest.param((TurnStart(turn=1), StepEnd(turn=1, step=1)), id="end-without-start"),
        pytest.param((RequestContext(provider="p", model="m"),), id="context-outside-a-turn"),
        pytest.param(
            (TurnStart(turn=1), ToolResultEvent(turn=1, step=1, message=tool_message("c"))),
            id="result-outside-a-step",
        ),
        pytest.param(("compaction/start", TurnStart(turn=1)), id="turn-crosses-compaction"),
    ],
)
def test_S128_what_stands_in_the_wrong_place_is_refused(data: tuple[object, ...]) -> None:
    with pytest.raises(InvalidLogError):
        check_turns(logged(*data))


def test_S76_S128_a_marker_ends_an_inherited_compaction() -> None:
    check_turns(logged("compaction/start", TurnStart(turn=1), EndSeed()))
    check_turns(logged("compaction/start", "compaction/end", TurnStart(turn=1)))


def test_S128_open_tails_are_fine() -> None:
    check_turns(open_step("a").events)
    check_turns(full_log().events)
