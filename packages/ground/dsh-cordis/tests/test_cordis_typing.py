"""What `mypy --strict` must accept and refuse; the sample is checked, never run."""

import re
from pathlib import Path
from textwrap import dedent

from mypy import api

SAMPLE = '''
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import ClassVar

from dsh_cordis import (
    Bail, Context, Emit, Fiber, Handle, Next, Parallel, Serial, Service, SyncWaterfall, Target,
    Waterfall, create_scope,
)


class Opened(Emit, frozen=True):
    """A door opened."""

    name: ClassVar[str] = "door/opened"
    subject: ClassVar[str | None] = "door"
    door: int


class Closing(Parallel, frozen=True):
    """A door is about to close."""

    name: ClassVar[str] = "door/closing"
    door: int


class MayEnter(Serial[str], frozen=True):
    """Who answers decides."""

    name: ClassVar[str] = "door/may-enter"
    guest: str


class Guess(Bail[int], frozen=True):
    """A guess at once."""

    name: ClassVar[str] = "door/guess"


class Pass(Waterfall[str], frozen=True):
    """A guest passes."""

    name: ClassVar[str] = "door/pass"
    guest: str


class Feed(SyncWaterfall[AsyncIterator[int]], frozen=True):
    """A stream of people."""

    name: ClassVar[str] = "door/feed"


class Porter(Service):
    key: ClassVar[str] = "porter"

    def greet(self, guest: str) -> int:
        self.ctx.effect(lambda: None)
        return len(guest)


class Lock(Service, ABC):
    key: ClassVar[str] = "lock"

    @abstractmethod
    def turn(self) -> int: ...


class Needs(Context):
    porter: Porter
    lift: "Porter | None" = None


def opened(event: Opened) -> None: ...
async def opened_late(event: Opened) -> None: ...
def other_payload(event: MayEnter) -> None: ...
async def decides(event: MayEnter) -> str | None: ...
async def decides_wrongly(event: MayEnter) -> int:
    return 1
async def around(event: Pass, rest: Next[str]) -> str:
    return await rest()
async def wrong_rest(event: Pass, rest: Next[int]) -> str:
    return str(await rest())
async def wrong_return(event: Pass, rest: Next[str]) -> int:
    return 1
async def doubled(event: Feed, rest: Callable[[], AsyncIterator[int]]) -> AsyncIterator[int]:
    async for number in rest():
        yield number
def passes_on(event: Feed, rest: Callable[[], AsyncIterator[int]]) -> AsyncIterator[int]:
    return rest()
def not_a_stream(event: Feed, rest: Callable[[], AsyncIterator[int]]) -> int:
    return 1


def apply(ctx: Needs, config: dict[str, str]) -> object:
    handle: Handle = ctx.on(Opened, opened)
    ctx.on(Opened, opened_late, prepend=True, once=True, everywhere=True)
    ctx.on(Opened, lambda event: print(event.door))
    ctx.on(Closing, lambda event: print(event.door))
    ctx.on(MayEnter, decides)
    ctx.on(Guess, lambda event: 3)
    ctx.on(Pass, around)
    ctx.on(Pass, lambda event, rest: rest())
    ctx.on(Feed, passes_on)
    ctx.on(Feed, lambda event, rest: rest())
    ctx.emit(Opened(door=ctx.porter.greet("me")), target=Target(1))
    if ctx.lift is not None:
        ctx.lift.greet("me")
    handle()
    found = ctx.get(Porter)
    if found is not None:
        found.greet("me")
    lock = ctx.get(Lock)
    if lock is not None:
        print(lock.turn() + 1)
    fiber: Fiber = ctx.plugin(apply, {"a": "b"})
    scope = create_scope(ctx, object())
    scope.ctx.emit(Opened(door=1), target=Target(1, lambda owner: owner.fiber is fiber))
    return handle


async def check(ctx: Needs) -> None:
    async def text() -> str:
        return ""

    async def number() -> int:
        return 1

    async def people() -> AsyncIterator[int]:
        yield 1

    answer: str | None = await ctx.serial(MayEnter(guest="me"))
    guess: int | None = ctx.bail(Guess())
    (await ctx.waterfall(Pass(guest="me"), text)).upper()
    async for one in ctx.waterfall(Feed(), people):
        print(one + 1, answer, guess)
    async with ctx.plugin(apply) as fiber:
        await fiber.update({})
    await ctx.parallel(Closing(door=1))

    ctx.on(Opened, other_payload)  # error
    ctx.on(Opened, around)  # error
    ctx.on(Closing, other_payload)  # error
    ctx.on(MayEnter, decides_wrongly)  # error
    ctx.on(Guess, lambda event: "three")  # error
    ctx.on(Pass, wrong_rest)  # error
    ctx.on(Pass, wrong_return)  # error
    ctx.on(Pass, opened)  # error
    ctx.on(Feed, not_a_stream)  # error
    ctx.on(int, opened)  # error
    ctx.porter.nope()  # error
    ctx.get(Lock).turn()  # error
    ctx.get(int)  # error
    ctx.lift.greet("me")  # error
    ctx.emit(Opened(door="front"))  # error
    ctx.emit(Closing(door=1))  # error
    ctx.bail(MayEnter(guest="me"))  # error
    await ctx.waterfall(Pass(guest="me"), number)  # error
    ctx.waterfall(Feed(), text)  # error
    (await ctx.waterfall(Pass(guest="me"), text)).nope()  # error
    ctx.plugin(3)  # error
    ctx.provide(3, ctx)  # error
    ctx.emit(Opened(door=1), target=3)  # error
'''


def test_mypy_accepts_and_refuses_exactly_what_it_should(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    text = dedent(SAMPLE)
    sample.write_text(text, encoding="utf-8")
    cache = str(tmp_path / "cache")
    arguments = ["--strict", "--config-file=", "--no-pretty", "--cache-dir", cache, str(sample)]
    output, trouble, _ = api.run(arguments)
    assert trouble == ""
    found = {int(line) for line in re.findall(r"sample\.py:(\d+): error", output)}
    lines = text.splitlines()
    expected = {number for number, line in enumerate(lines, 1) if line.endswith("# error")}
    assert found == expected, output
