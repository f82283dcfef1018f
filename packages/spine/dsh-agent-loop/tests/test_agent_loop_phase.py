"""The phase machine, as a pure function."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_agent_loop import phase as phases
from dsh_agent_loop.phase import Idle, Maintenance, Phase, Running, Woken

PHASES: st.SearchStrategy[Phase] = st.one_of(
    st.just(Idle()),
    st.builds(Maintenance, latched=st.booleans()),
    st.builds(
        Running,
        turn=st.integers(0, 9),
        step=st.integers(0, 9),
        latched=st.booleans(),
    ),
)


def wake(phase: Phase, *, aborted: bool = False, disposed: bool = False) -> Woken:
    return phases.wake(phase, aborted=aborted, disposed=disposed, closing=False)


def test_A5_a_wake_starts_an_idle_agent() -> None:
    assert wake(Idle()) == Woken(Running(), start=True)


def test_A7_a_wake_of_a_running_agent_does_nothing() -> None:
    running = Running(turn=2, step=1)
    assert wake(running) == Woken(running, start=False)


@pytest.mark.parametrize(
    ("phase", "aborted", "latched"),
    [
        pytest.param(Maintenance(), False, True, id="maintenance"),
        pytest.param(Running(turn=1), True, True, id="aborted-turn"),
        pytest.param(Running(turn=1), False, False, id="live-turn"),
    ],
)
def test_A8_a_wake_that_cannot_start_is_kept(phase: Phase, aborted: bool, latched: bool) -> None:
    woken = wake(phase, aborted=aborted)
    assert (phases.latched(woken.phase), woken.start) == (latched, False)


@given(PHASES, st.booleans())
def test_A8_a_disposed_activity_keeps_no_wake(phase: Phase, aborted: bool) -> None:
    woken = phases.wake(phase, aborted=aborted, disposed=True, closing=True)
    assert woken == Woken(phase, start=False)


@given(PHASES)
def test_A9_a_clearing_cancel_drops_the_latch(phase: Phase) -> None:
    assert not phases.latched(phases.drop_latch(phase))


@given(PHASES, st.booleans(), st.booleans())
def test_A17_no_driver_starts_once_teardown_began(
    phase: Phase, aborted: bool, disposed: bool
) -> None:
    woken = phases.wake(phase, aborted=aborted, disposed=disposed, closing=True)
    assert not woken.start
    assert not phases.replays(Idle(), was_latched=True, pending=True, closing=True)


@pytest.mark.parametrize(
    ("ended_well", "steps", "pending", "expected"),
    [
        pytest.param(True, 1, True, True, id="more-to-do"),
        pytest.param(True, 1, False, False, id="nothing-pending"),
        pytest.param(True, 0, True, False, id="no-step-parks-the-rest"),
        pytest.param(False, 3, True, False, id="failure-parks-the-rest"),
    ],
)
def test_A68_when_a_driver_goes_on(
    ended_well: bool, steps: int, pending: bool, expected: bool
) -> None:
    assert phases.goes_on(ended_well=ended_well, steps=steps, pending=pending) is expected


def test_A69_the_next_turn_drops_the_latch() -> None:
    assert phases.begin_turn(Running(turn=1, step=4, latched=True), 2) == Running(turn=2)


@pytest.mark.parametrize(
    ("phase", "latched", "pending", "expected"),
    [
        pytest.param(Idle(), True, True, True, id="kept-wake"),
        pytest.param(Idle(), True, False, False, id="its-message-is-gone"),
        pytest.param(Idle(), False, True, False, id="nobody-woke"),
        pytest.param(Running(), True, True, False, id="a-listener-started-one"),
    ],
)
def test_A70_A71_replay_at_convergence(
    phase: Phase, latched: bool, pending: bool, expected: bool
) -> None:
    answer = phases.replays(phase, was_latched=latched, pending=pending, closing=False)
    assert answer is expected
