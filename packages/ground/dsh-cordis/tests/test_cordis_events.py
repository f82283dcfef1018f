from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import ClassVar, Literal

import anyio
import pytest

from dsh_cordis import (
    Bail,
    Context,
    Emit,
    InternalDispatch,
    Next,
    Parallel,
    Serial,
    SyncWaterfall,
    Target,
    Waterfall,
    task_census,
)
from dsh_cordis.testing import ErrorRecorder

pytest_plugins = ["dsh_cordis.testing"]


class Said(Emit, frozen=True):
    """Somebody said something."""

    name: ClassVar[str] = "test/said"
    text: str = ""


class Asked(Emit, frozen=True):
    """Listeners may veto."""

    name: ClassVar[str] = "test/asked"
    vetoing: ClassVar[bool] = True


class Together(Parallel, frozen=True):
    """All at once."""

    name: ClassVar[str] = "test/together"


class Question(Serial[object], frozen=True):
    """One by one."""

    name: ClassVar[str] = "test/question"


class Quick(Bail[object], frozen=True):
    """One by one, at once."""

    name: ClassVar[str] = "test/quick"


class Around(Waterfall[str], frozen=True):
    """Wrapped."""

    name: ClassVar[str] = "test/around"


class Streamed(SyncWaterfall[AsyncIterator[int]], frozen=True):
    """A wrapped stream."""

    name: ClassVar[str] = "test/streamed"


class BoomError(Exception):
    pass


def test_K74_emit_runs_all_in_order_and_contains_each() -> None:
    ctx = Context()
    recorder = ErrorRecorder(ctx)
    log: list[str] = []

    def bad(event: Said) -> None:
        log.append("bad")
        raise BoomError

    ctx.on(Said, bad)
    ctx.on(Said, lambda event: log.append(event.text))
    ctx.emit(Said(text="hello"))
    assert log == ["bad", "hello"]
    assert len(recorder.errors) == 1


async def test_K75_a_vetoing_emit_stops_at_the_first_exception(ctx: Context) -> None:
    log: list[str] = []

    async def late(event: Asked) -> None:
        log.append("late")

    def veto(event: Asked) -> None:
        log.append("veto")
        raise BoomError

    ctx.on(Asked, late)
    ctx.on(Asked, veto)
    ctx.on(Asked, lambda event: log.append("never"))
    with pytest.raises(BoomError):
        ctx.emit(Asked())
    await anyio.wait_all_tasks_blocked()
    assert log == ["veto"]


variable: ContextVar[str] = ContextVar("variable", default="unset")


async def test_K76_async_listeners_run_after_the_emitter_in_order_with_its_variables(
    ctx: Context,
) -> None:
    log: list[str] = []

    def listener(number: int) -> Callable[[Said], object]:
        async def listen(event: Said) -> None:
            log.append(f"{number} {variable.get()}")

        return listen

    for number in range(6):
        ctx.on(Said, listener(number))
    variable.set("emitter")
    ctx.emit(Said())
    assert log == []
    await anyio.wait_all_tasks_blocked()
    assert log == [f"{number} emitter" for number in range(6)]


async def test_K76_a_late_listener_belongs_to_its_fiber_and_its_failure_is_reported(
    ctx: Context,
) -> None:
    recorder = ErrorRecorder(ctx)
    log: list[str] = []

    async def waits(event: Said) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            log.append("cancelled")

    async def fails(event: Said) -> None:
        raise BoomError

    def body(ctx: Context) -> None:
        ctx.on(Said, waits)
        ctx.on(Said, fails)

    fiber = ctx.plugin(body)
    await fiber
    ctx.emit(Said())
    await anyio.wait_all_tasks_blocked()
    assert (len(recorder.errors), fiber.state.value) == (1, "active")
    with anyio.fail_after(5):
        await fiber.dispose()
    assert log == ["cancelled"]


class Census:
    def __init__(self) -> None:
        self.labels: list[str] = []
        self.cancels: list[Callable[[], None]] = []

    def enter(
        self,
        kind: str,
        label: str,
        *,
        call_id: str | None = None,
        cancel: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        entry = f"{kind} {label}"
        self.labels.append(entry)
        assert cancel is not None
        self.cancels.append(cancel)
        return lambda: self.labels.remove(entry)


async def test_K76_the_census_sees_a_late_listener_before_emit_returns(ctx: Context) -> None:
    census = Census()

    async def waits(event: Said) -> None:
        await anyio.sleep_forever()

    def body(ctx: Context) -> None:
        ctx.on(Said, waits)

    fiber = ctx.plugin(body)
    await fiber
    recorder = ErrorRecorder(ctx)
    task_census.set(census)
    ctx.emit(Said())
    assert census.labels == ["listener test/said body"]
    await anyio.wait_all_tasks_blocked()
    census.cancels[0]()
    await anyio.wait_all_tasks_blocked()
    assert (census.labels, fiber.state.value, recorder.errors) == ([], "active", [])
    ctx.emit(Said())
    with anyio.fail_after(5):
        await fiber.dispose()
    assert census.labels == []


async def test_K77_parallel_waits_for_all_and_groups_failures_in_listener_order(
    ctx: Context,
) -> None:
    log: list[str] = []
    go = anyio.Event()

    async def slow(event: Together) -> None:
        await go.wait()
        raise BoomError("first")

    def quick(event: Together) -> None:
        raise BoomError("second")

    async def fine(event: Together) -> None:
        log.append("fine")
        go.set()

    for listener in (slow, quick, fine):
        ctx.on(Together, listener)
    with anyio.fail_after(5), pytest.raises(ExceptionGroup) as caught:
        await ctx.parallel(Together())
    assert [str(error) for error in caught.value.exceptions] == ["first", "second"]
    assert log == ["fine"]


async def test_K77_a_cancelled_dispatcher_cancels_and_joins_its_listeners(ctx: Context) -> None:
    recorder = ErrorRecorder(ctx)
    log: list[str] = []

    async def waits(event: Together) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            log.append("joined")

    def quick(event: Together) -> None:
        raise BoomError

    ctx.on(Together, waits)
    ctx.on(Together, waits)
    ctx.on(Together, quick)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def cancel() -> None:
                await anyio.wait_all_tasks_blocked()
                scope.cancel()

            tasks.start_soon(cancel)
            await ctx.parallel(Together())
    assert (log, len(recorder.errors)) == (["joined", "joined"], 1)


@pytest.mark.parametrize("answer", [0, "", []], ids=repr)
async def test_K78_serial_and_bail_stop_at_the_first_result(ctx: Context, answer: object) -> None:
    async def nothing(event: Question) -> Literal[False]:
        return False

    async def answers(event: Question) -> object:
        return answer

    async def never(event: Question) -> object:
        pytest.fail("ran")

    for listener in (nothing, answers, never):
        ctx.on(Question, listener)
    assert await ctx.serial(Question()) == answer
    ctx.on(Quick, lambda event: False)
    assert ctx.bail(Quick()) is None
    ctx.on(Quick, lambda event: answer)
    assert ctx.bail(Quick()) == answer


async def test_K78_a_coroutine_under_bail_is_refused(ctx: Context) -> None:
    async def late(event: Quick) -> object:
        return 1

    ctx.on(Quick, late)
    with pytest.raises(TypeError, match="asynchronous"):
        ctx.bail(Quick())


async def test_K79_a_waterfall_wraps_and_each_next_runs_the_same_rest_again(ctx: Context) -> None:
    async def twice(event: Around, rest: Next[str]) -> str:
        return await rest() + await rest()

    async def shout(event: Around, rest: Next[str]) -> str:
        return (await rest()).upper()

    async def inner() -> str:
        return "a"

    ctx.on(Around, twice)
    ctx.on(Around, shout)
    assert await ctx.waterfall(Around(), inner) == "AA"

    async def veto(event: Around, rest: Next[str]) -> str:
        return "vetoed"

    ctx.on(Around, veto, prepend=True)
    assert await ctx.waterfall(Around(), inner) == "vetoed"


async def test_K79_two_hundred_listeners_deep(ctx: Context) -> None:
    async def add(event: Around, rest: Next[str]) -> str:
        return "." + await rest()

    async def inner() -> str:
        return ""

    for _ in range(200):
        ctx.on(Around, add)
    assert await ctx.waterfall(Around(), inner) == "." * 200


async def test_K79_a_stream_passes_untouched_and_next_may_be_called_late(ctx: Context) -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    async def doubled(
        event: Streamed, rest: Callable[[], AsyncIterator[int]]
    ) -> AsyncIterator[int]:
        async for number in rest():
            yield number * 2

    ctx.on(Streamed, doubled)
    stream = ctx.waterfall(Streamed(), numbers)
    assert [number async for number in stream] == [0, 2, 4]


def test_K80_order_is_registration_order_and_prepend_goes_first() -> None:
    ctx = Context()
    log: list[str] = []

    def same(event: Said) -> None:
        log.append("same")

    ctx.on(Said, lambda event: log.append("a"))
    ctx.on(Said, lambda event: log.append("b"), prepend=True)
    ctx.on(Said, lambda event: log.append("c"), prepend=True)
    first = ctx.on(Said, same)
    ctx.on(Said, same)
    ctx.emit(Said())
    assert log == ["c", "b", "a", "same", "same"]
    log.clear()
    first()
    first()
    ctx.emit(Said())
    assert log == ["c", "b", "a", "same"]


def test_K81_K82_who_takes_part_is_decided_at_the_start() -> None:
    ctx = Context()
    log: list[str] = []

    def first(event: Said) -> None:
        log.append("first")
        later()
        ctx.on(Said, lambda event: log.append("added"))

    ctx.on(Said, first)
    later = ctx.on(Said, lambda event: log.append("disposed"))
    ctx.emit(Said())
    assert log == ["first"]


async def test_K82_a_disposed_interceptor_stays_in_the_decision_it_was_admitted_to(
    ctx: Context,
) -> None:
    async def outer(event: Around, rest: Next[str]) -> str:
        gate()
        return await rest()

    async def gating(event: Around, rest: Next[str]) -> str:
        return "gated"

    async def inner() -> str:
        return "open"

    ctx.on(Around, outer)
    gate = ctx.on(Around, gating)
    assert await ctx.waterfall(Around(), inner) == "gated"
    assert await ctx.waterfall(Around(), inner) == "open"


async def test_K83_once_runs_once_whatever_nests(ctx: Context) -> None:
    log: list[str] = []

    def again(event: Said) -> None:
        if event.text == "outer":
            ctx.emit(Said(text="inner"))

    ctx.on(Said, again)
    ctx.on(Said, lambda event: log.append(event.text), once=True)
    ctx.emit(Said(text="outer"))
    assert log == ["inner"]

    async def nested(event: Around, rest: Next[str]) -> str:
        if not log[1:]:
            log.append("nested")
            await ctx.waterfall(Around(), inner)
        return await rest()

    async def once(event: Around, rest: Next[str]) -> str:
        return "once " + await rest()

    async def inner() -> str:
        return "inner"

    ctx.on(Around, nested)
    ctx.on(Around, once, once=True)
    assert await ctx.waterfall(Around(), inner) == "inner"


def test_K84_an_event_is_known_by_its_name_and_its_mode_is_checked() -> None:
    ctx = Context()
    log: list[str] = []

    class SaidAgain(Emit, frozen=True):
        """The same event after its module was imported again."""

        name: ClassVar[str] = "test/said"
        text: str = ""

    ctx.on(Said, lambda event: log.append("old"))
    ctx.on(SaidAgain, lambda event: log.append("new"))
    ctx.emit(SaidAgain())
    ctx.emit(Said())
    assert log == ["old", "new"] * 2
    with pytest.raises(TypeError, match="emit event"):
        ctx.bail(Said())  # type: ignore[arg-type]  # what is refused
    assert log == ["old", "new"] * 2


async def test_K85_a_predicate_filters_and_everywhere_ignores_it(ctx: Context) -> None:
    log: list[str] = []

    def plugin(ctx: Context, word: str) -> None:
        ctx.on(Said, lambda event: log.append(word))
        ctx.on(Said, lambda event: log.append(f"{word} everywhere"), everywhere=True)

    first = ctx.plugin(plugin, "a")
    ctx.plugin(plugin, "b")
    await ctx.settled()
    ctx.emit(Said(), target=Target(admits=lambda owner: owner.fiber is first))
    assert log == ["a", "a everywhere", "b everywhere"]


async def test_K86_dispatch_observers_see_every_dispatch_and_may_stop_it(ctx: Context) -> None:
    seen: list[tuple[str, str]] = []

    def observe(event: InternalDispatch) -> None:
        seen.append((event.dispatch_mode, event.event.name))
        if isinstance(event.event, Asked):
            raise BoomError

    handle = ctx.on(InternalDispatch, observe)
    ctx.emit(Said())
    await ctx.parallel(Together())
    with pytest.raises(BoomError):
        ctx.emit(Asked())
    await handle()
    ctx.emit(Said())
    assert seen == [("emit", "test/said"), ("parallel", "test/together"), ("emit", "test/asked")]


async def test_K87_dispatch_is_allowed_from_a_disposed_context(ctx: Context) -> None:
    log: list[str] = []
    contexts: list[Context] = []
    fiber = ctx.plugin(lambda child: contexts.append(child))
    await fiber
    await fiber.dispose()
    ctx.on(Said, lambda event: log.append(event.text))
    contexts[0].emit(Said(text="from the grave"))
    assert log == ["from the grave"]


def test_K88_ten_thousand_listeners_come_and_go() -> None:
    ctx = Context()
    calls: list[None] = []
    handles = [ctx.on(Said, lambda event: calls.append(None)) for _ in range(10_000)]
    ctx.emit(Said())
    for handle in handles:
        handle()
    ctx.emit(Said())
    assert len(calls) == 10_000


async def test_an_async_listener_on_a_root_without_a_loop_is_reported(ctx: Context) -> None:
    root = Context()
    recorder = ErrorRecorder(root)

    async def late(event: Said) -> None:
        pytest.fail("ran")

    root.on(Said, late)
    root.emit(Said())
    assert [type(error).__name__ for error in recorder.errors] == ["NotEnteredError"]


async def test_K81_K86_a_prepared_emit_is_decided_and_checked_before_it_runs(ctx: Context) -> None:
    log: list[str] = []
    early = ctx.on(Said, lambda event: log.append("early"))
    run = ctx.prepare_emit(Said(text="1"))
    ctx.on(Said, lambda event: log.append("late"))
    assert log == []
    run()
    early()
    ctx.prepare_emit(Said(text="2"))()
    assert log == ["early", "late"]

    def refuse(event: InternalDispatch) -> None:
        raise ValueError("refused")

    ctx.on(InternalDispatch, refuse)
    with pytest.raises(ValueError, match="refused"):
        ctx.prepare_emit(Said(text="3"))


async def test_K88_has_listeners_is_false_only_when_nobody_would_hear(ctx: Context) -> None:
    assert not ctx.has_listeners(Said)
    handle = ctx.on(Said, lambda event: None)
    assert ctx.has_listeners(Said)
    handle()
    assert not ctx.has_listeners(Said)
    observer = ctx.on(InternalDispatch, lambda event: None)
    assert ctx.has_listeners(Said)
    observer()
    assert not ctx.has_listeners(Said)
