"""The phase machine of an agent: pure functions from a phase and an input to the next phase."""

import msgspec


class Idle(msgspec.Struct, frozen=True):
    """Nothing runs; a wake starts a driver."""


class Maintenance(msgspec.Struct, frozen=True):
    """Creation or a maintenance task holds the agent; wakes are kept."""

    latched: bool = False
    """A wake arrived; it runs when the task ends."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A driver drains the inbox."""

    turn: int = 0
    step: int = 0
    """Last step of the turn; 0 before the first."""
    latched: bool = False
    """A wake arrived after the abort; it runs at convergence."""


Phase = Idle | Maintenance | Running


class Woken(msgspec.Struct, frozen=True):
    """What a wake does."""

    phase: Phase
    start: bool
    """Start a driver now."""


def wake(phase: Phase, *, aborted: bool, disposed: bool, closing: bool) -> Woken:
    """A wake arrives.

    Args:
        phase: The current phase.
        aborted: The current activity's signal is aborted.
        disposed: It is aborted because the agent goes down.
        closing: Teardown has begun, so no driver starts any more.
    """
    match phase:
        case Idle():
            return Woken(phase, False) if closing else Woken(Running(), True)
        case Maintenance():
            return Woken(phase if disposed else Maintenance(latched=True), False)
        case Running() if aborted and not disposed:
            return Woken(msgspec.structs.replace(phase, latched=True), False)
        case Running():
            return Woken(phase, False)


def drop_latch(phase: Phase) -> Phase:
    """A cancel that clears the inbox forgets the wake, too."""
    match phase:
        case Idle():
            return phase
        case Maintenance():
            return Maintenance()
        case Running():
            return msgspec.structs.replace(phase, latched=False)


def begin_turn(phase: Phase, turn: int) -> Running:
    """A driver opens a turn; a latch of the turn before is dropped."""
    del phase
    return Running(turn=turn)


def begin_step(phase: Phase, step: int) -> Phase:
    """A step begins."""
    return msgspec.structs.replace(phase, step=step) if isinstance(phase, Running) else phase


def latched(phase: Phase) -> bool:
    """Whether a kept wake is waiting."""
    return not isinstance(phase, Idle) and phase.latched


def replays(phase: Phase, *, was_latched: bool, pending: bool, closing: bool) -> bool:
    """Whether the activity that just went idle is followed by a new driver.

    The latch asks only whether anything is pending, whatever woke.
    """
    return isinstance(phase, Idle) and was_latched and pending and not closing


def goes_on(*, ended_well: bool, steps: int, pending: bool) -> bool:
    """Whether a driver opens another turn after one that closed."""
    return ended_well and steps > 0 and pending
