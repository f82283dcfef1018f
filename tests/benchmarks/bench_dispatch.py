"""Dispatch of one event to ten listeners against ten plain calls."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from dsh_cordis import Context, Emit

BASELINE = "ten plain calls"
LISTENERS = 10


class Tick(Emit, frozen=True):
    """Something small happened."""

    name: ClassVar[str] = "bench/tick"
    count: int


class Missed(Emit, frozen=True):
    """Nobody listens to it."""

    name: ClassVar[str] = "bench/missed"
    count: int


def cases() -> Mapping[str, Callable[[], object]]:
    """The same ten functions, called and dispatched to."""
    heard = [0]

    def listen(event: Tick) -> None:
        heard[0] += event.count

    ctx = Context()
    for _ in range(LISTENERS):
        ctx.on(Tick, listen)

    def plain() -> None:
        event = Tick(count=1)
        for _ in range(LISTENERS):
            listen(event)

    return {
        "ten plain calls": plain,
        "emit to ten listeners": lambda: ctx.emit(Tick(count=1)),
        "emit to nobody": lambda: ctx.emit(Missed(count=1)),
    }
