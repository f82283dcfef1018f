"""Inbox, selection and turn boundary as pure folds; consumed work."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_agent import (
    InboxError,
    InboxState,
    ModelSelection,
    SelectionState,
    TurnBoundary,
    apply_splice,
    fold_consumed_work,
    inbox_unit,
    model_selection_unit,
    turn_boundary_unit,
)
from dsh_llm import AdapterDefaults, LlmCallConfig, Message, create_user_message
from dsh_session import (
    Aborted,
    Completed,
    InboxSpliced,
    ModelSelectionEvent,
    RawData,
    RequestHeader,
    RequestHeaderEvent,
    SessionEvent,
    SessionEventData,
    SessionHeader,
    SessionId,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserCancel,
)

HEADER = SessionHeader(id=SessionId("s"), created_at=0)


def log(*payloads: SessionEventData) -> list[SessionEvent]:
    return [
        SessionEvent(type=data.type, seq=seq, time=0, data=data)
        for seq, data in enumerate(payloads)
    ]


def splice(
    start: int, removed: int, *inserted: Message, outcome: str | None = None
) -> InboxSpliced:
    return InboxSpliced(
        target="next-turn",
        start=start,
        removed_count=removed or None,
        inserted=inserted,
        outcome=outcome,
    )


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 3)), max_size=20))
def test_A21_A28_the_fold_does_what_a_list_does(steps: list[tuple[int, int, int]]) -> None:
    expected: list[Message] = []
    state = InboxState()
    for start, removed, count in steps:
        start = min(start, len(expected))
        removed = min(removed, len(expected) - start)
        inserted = [create_user_message("x") for _ in range(count)]
        expected[start : start + removed] = inserted
        state = apply_splice(state, splice(start, removed, *inserted), 0)
        assert list(state.next_turn) == expected


@pytest.mark.parametrize(
    ("start", "removed"),
    [
        pytest.param(-1, 0, id="negative-start"),
        pytest.param(0, 2, id="too-many-removed"),
        pytest.param(2, 0, id="start-beyond"),
        pytest.param(0, -1, id="negative-count"),
    ],
)
def test_A28_bad_coordinates_fail_and_name_the_seq(start: int, removed: int) -> None:
    state = apply_splice(InboxState(), splice(0, 0, create_user_message("a")), 0)
    with pytest.raises(InboxError, match="seq 7"):
        apply_splice(state, splice(start, removed), 7)


def test_A28_an_id_pending_twice_fails_the_fold() -> None:
    message = create_user_message("a")
    state = apply_splice(InboxState(), splice(0, 0, message), 0)
    other = InboxSpliced(target="next-step", start=0, inserted=(message,))
    with pytest.raises(InboxError, match="twice"):
        apply_splice(state, other, 1)


def test_A28_a_splice_that_cannot_be_read_fails_the_fold() -> None:
    event = SessionEvent(type="agent/inbox/spliced", seq=3, time=0, data=RawData({"start": "x"}))
    with pytest.raises(InboxError, match="seq 3"):
        inbox_unit.apply(InboxState(), event)


def test_S163_the_view_of_the_inbox() -> None:
    message = create_user_message("a")
    state = inbox_unit.apply(inbox_unit.init(HEADER, 0), log(splice(0, 0, message))[0])
    assert inbox_unit.view is not None
    view = inbox_unit.checked_view(inbox_unit.view(state))
    assert view == {
        "next-turn": [
            {
                "id": message.id,
                "role": "user",
                "content": [{"type": "text", "text": "a"}],
                "source": {"kind": "user"},
            }
        ],
        "next-step": [],
    }
    restored = inbox_unit.state_from_json(inbox_unit.state_to_json(state))
    assert restored == state


def header(model: str, effort: str | None = None, *, marked: bool = False) -> RequestHeaderEvent:
    return RequestHeaderEvent(
        header=RequestHeader(
            config=LlmCallConfig(provider="p", model=model, reasoning_effort=effort),
            adapter_defaults=AdapterDefaults(reasoning_effort=True) if marked else None,
        ),
        reason="initial",
    )


def fold_selection(*payloads: SessionEventData) -> SelectionState:
    state = model_selection_unit.init(HEADER, 0)
    for event in log(*payloads):
        state = model_selection_unit.apply(state, event)
    return state


def test_A32_an_effort_that_the_adapter_supplied_is_no_choice() -> None:
    state = fold_selection(header("m", "high", marked=True))
    assert state.last_used == ModelSelection(provider="p", model="m")


def test_A34_a_choice_is_used_up_by_a_header_that_matches_it() -> None:
    choice = ModelSelectionEvent(provider="p", model="n", reasoning_effort="low")
    pending = ModelSelection(provider="p", model="n", reasoning_effort="low")
    assert fold_selection(header("m"), choice).pending == pending
    assert fold_selection(choice, header("n")).pending == pending
    assert fold_selection(choice, header("n", "low")) == SelectionState(last_used=pending)


def test_S153_events_of_no_concern_leave_the_states_alone() -> None:
    event = log(StepEnd(turn=1, step=1))[0]
    inbox, selection = InboxState(), SelectionState()
    assert inbox_unit.apply(inbox, event) is inbox
    assert model_selection_unit.apply(selection, event) is selection


def test_A37_the_turn_boundary() -> None:
    state = turn_boundary_unit.init(HEADER, 0)
    seen: list[tuple[int, int, bool, bool]] = []
    for event in log(
        TurnStart(turn=4),
        StepStart(turn=4, step=1),
        StepEnd(turn=4, step=1),
        TurnEnd(turn=4, reason=Completed()),
    ):
        state = turn_boundary_unit.apply(state, event)
        seen.append((state.turn, state.step, state.turn_open, state.step_open))
    assert seen == [
        (4, 0, True, False),
        (4, 1, True, True),
        (4, 1, True, False),
        (4, 1, False, False),
    ]
    assert state == msgspec.structs.replace(
        TurnBoundary(), turn=4, step=1, step_start_seq=1, step_boundary_seq=2
    )


ABORTED: TurnEndReason = Aborted(reason=UserCancel())


@pytest.mark.parametrize(
    ("payloads", "turn", "dropped"),
    [
        pytest.param([], None, False, id="empty"),
        pytest.param(
            [TurnStart(turn=1), StepStart(turn=1, step=1), TurnEnd(turn=1, reason=ABORTED)],
            1,
            False,
            id="a-step-counts",
        ),
        pytest.param(
            [TurnStart(turn=1), TurnEnd(turn=1, reason=ABORTED)], None, False, id="nothing-claimed"
        ),
        pytest.param(
            [TurnStart(turn=1), splice(0, 1), TurnEnd(turn=1, reason=ABORTED)],
            1,
            False,
            id="claimed-and-not-completed",
        ),
        pytest.param(
            [TurnStart(turn=1), splice(0, 1), TurnEnd(turn=1, reason=Completed())],
            None,
            False,
            id="claimed-and-completed-without-a-step",
        ),
        pytest.param([splice(0, 1, outcome="canceled")], None, True, id="dropped"),
        pytest.param(
            [
                splice(0, 1, outcome="canceled"),
                TurnStart(turn=1),
                StepStart(turn=1, step=1),
                TurnEnd(turn=1, reason=Completed()),
            ],
            1,
            False,
            id="absorbed-by-a-later-turn",
        ),
    ],
)
def test_A55_consumed_work(
    payloads: list[SessionEventData], turn: int | None, dropped: bool
) -> None:
    found = fold_consumed_work(log(*payloads))
    assert (None if found.end is None else found.end.turn) == turn
    assert found.dropped_unrun is dropped
