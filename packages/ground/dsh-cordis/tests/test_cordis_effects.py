from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager

import anyio
import anyio.lowlevel
import pytest

from dsh_cordis import (
    Context,
    Fiber,
    FiberState,
    Handle,
    InactiveError,
    InternalError,
    NotEnteredError,
)
from dsh_cordis.testing import ErrorRecorder

pytest_plugins = ["dsh_cordis.testing"]


def noting(log: list[str], word: str) -> Callable[[], None]:
    return lambda: log.append(word)


async def test_K60_effects_unwind_newest_first_each_finished_before_the_next(ctx: Context) -> None:
    log: list[str] = []

    def slow(word: str) -> Callable[[], object]:
        async def undo() -> None:
            log.append(f"{word} begins")
            await anyio.lowlevel.checkpoint()
            log.append(f"{word} ends")

        return undo

    def body(ctx: Context) -> None:
        ctx.effect(lambda: slow("a"))
        ctx.effect(lambda: noting(log, "b"))
        ctx.plugin(lambda child: child.effect(lambda: slow("child")))
        ctx.effect(lambda: slow("c"))

    fiber = ctx.plugin(body)
    await ctx.settled()
    await fiber.dispose()
    assert log == [
        "c begins",
        "c ends",
        "child begins",
        "child ends",
        "b",
        "a begins",
        "a ends",
    ]


async def test_K61_K66_every_accepted_shape_is_undone_newest_first(ctx: Context) -> None:
    log: list[str] = []

    @contextmanager
    def manager(word: str) -> Iterator[None]:
        log.append(f"enter {word}")
        yield
        log.append(f"exit {word}")

    @asynccontextmanager
    async def async_manager(word: str) -> AsyncIterator[None]:
        log.append(f"enter {word}")
        yield
        log.append(f"exit {word}")

    def generator() -> Generator[object, None, object]:
        yield noting(log, "first")
        yield manager("second")
        return noting(log, "last")

    async def async_generator() -> AsyncIterator[object]:
        yield noting(log, "async first")
        yield async_manager("async second")

    async def coroutine() -> Callable[[], None]:
        return noting(log, "coroutine")

    handles: list[Handle] = [
        ctx.effect(lambda: None),
        ctx.effect(manager("plain")),
        ctx.effect(async_manager("async plain")),
        ctx.effect(generator),
        ctx.effect(async_generator),
        ctx.effect(coroutine),
    ]
    with anyio.fail_after(5):
        for handle in handles:
            await handle.ready()
        assert sorted(log) == sorted(
            ["enter plain", "enter async plain", "enter second", "enter async second"]
        )
        log.clear()
        for handle in reversed(handles):
            await handle()
    assert log == [
        "coroutine",
        "exit async second",
        "async first",
        "last",
        "exit second",
        "first",
        "exit async plain",
        "exit plain",
    ]


async def test_K61_a_bare_yield_and_other_results_are_refused_and_rolled_back(ctx: Context) -> None:
    log: list[str] = []

    def bare() -> Iterator[object]:
        yield noting(log, "undone")
        yield  # type: ignore[misc]  # what is refused

    with pytest.raises(TypeError, match="bare yield"):
        ctx.effect(bare)
    with pytest.raises(TypeError, match="3"):
        ctx.effect(lambda: 3)
    with pytest.raises(TypeError):
        ctx.effect("nonsense")
    assert log == ["undone"]
    assert ctx.fiber.effects() == []


async def test_K63_a_handle_works_once_and_all_callers_wait_for_the_same_end(ctx: Context) -> None:
    log: list[str] = []
    gate = anyio.Event()

    async def undo() -> None:
        log.append("begins")
        await gate.wait()
        log.append("ends")

    handle = ctx.effect(lambda: undo)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(2):

                async def wait() -> None:
                    await handle()
                    log.append("waiter")

                tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            assert log == ["begins"]
            gate.set()
    assert log == ["begins", "ends", "waiter", "waiter"]
    await handle()
    assert handle.used


async def test_K64_an_unload_joins_an_undo_in_progress(ctx: Context) -> None:
    log: list[str] = []
    gate = anyio.Event()

    async def undo() -> None:
        await gate.wait()
        log.append("undone")

    handles: list[Handle] = []

    def body(ctx: Context) -> None:
        ctx.effect(lambda: noting(log, "older"))
        handles.append(ctx.effect(lambda: undo))

    with anyio.fail_after(5):
        async with ctx.plugin(body) as fiber:
            handles[0]()
            assert [info.label for info in fiber.effects()] == ["<lambda>", "<lambda>"]
            disposal = fiber.dispose()
            await anyio.wait_all_tasks_blocked()
            assert log == []
            gate.set()
            await disposal
    assert log == ["undone", "older"]


async def test_K65_every_disposer_runs_and_errors_are_raised_or_reported(ctx: Context) -> None:
    log: list[str] = []
    recorder = ErrorRecorder(ctx)

    def fail(word: str) -> Callable[[], None]:
        def undo() -> None:
            log.append(word)
            raise ValueError(word)

        return undo

    def composite() -> Iterator[object]:
        yield noting(log, "oldest")
        yield fail("b")
        yield fail("a")

    handle = ctx.effect(composite)
    with pytest.raises(ExceptionGroup) as caught:
        handle()
    assert [str(error) for error in caught.value.exceptions] == ["a", "b"]
    single = ctx.effect(lambda: fail("single"))
    with pytest.raises(ValueError, match="single"):
        await single()
    async with ctx.plugin(lambda child: child.effect(composite)):
        pass
    assert log == ["a", "b", "oldest", "single", "a", "b", "oldest"]
    assert [str(error) for error in recorder.errors] == ["a", "b"]


async def test_K66_a_failing_set_up_rolls_back_and_raises_its_own_error(ctx: Context) -> None:
    log: list[str] = []
    recorder = ErrorRecorder(ctx)

    def bad_undo() -> None:
        log.append("bad")
        raise ValueError("roll-back")

    def composite() -> Iterator[object]:
        yield noting(log, "first")
        yield bad_undo
        raise KeyError("set-up")

    with pytest.raises(KeyError, match="set-up"):
        ctx.effect(composite)
    assert log == ["bad", "first"]
    assert [str(error) for error in recorder.errors] == ["roll-back"]


async def test_K66_roll_back_goes_on_in_the_kernel_behind_an_async_part(ctx: Context) -> None:
    log: list[str] = []
    gate = anyio.Event()

    async def slow() -> None:
        await gate.wait()
        log.append("slow")

    def composite() -> Iterator[object]:
        yield noting(log, "oldest")
        yield slow
        yield noting(log, "newest")
        raise KeyError("set-up")

    def body(ctx: Context) -> None:
        with pytest.raises(KeyError):
            ctx.effect(composite)
        log.append("raised")

    with anyio.fail_after(5):
        async with ctx.plugin(body) as fiber:
            disposal = fiber.dispose()
            gate.set()
            await disposal
    assert log == ["newest", "raised", "slow", "oldest"]


async def test_K67_yielding_a_handle_moves_it_into_the_composite(ctx: Context) -> None:
    log: list[str] = []
    children: list[Fiber] = []

    def composite() -> Iterator[object]:
        inner = ctx.effect(lambda: noting(log, "inner"), label="inner")
        children.append(ctx.plugin(lambda child: child.effect(lambda: noting(log, "child"))))
        used = ctx.effect(lambda: None)
        used()
        yield inner
        yield children[0]
        yield noting(log, "newest")
        yield used

    handle = ctx.effect(composite, label="composite")
    await ctx.settled()
    assert [(info.label, len(info.children)) for info in ctx.fiber.effects()] == [("composite", 3)]
    with anyio.fail_after(5):
        await handle()
    assert log == ["newest", "child", "inner"]
    assert children[0].state is FiberState.DISPOSED
    assert ctx.fiber.effects() == []


async def test_K68_a_failing_async_set_up_is_raised_or_reported(ctx: Context) -> None:
    recorder = ErrorRecorder(ctx)

    async def fail() -> None:
        await anyio.lowlevel.checkpoint()
        raise ValueError("late")

    awaited = ctx.effect(fail)
    with anyio.fail_after(5):
        with pytest.raises(ValueError, match="late"):
            await awaited.ready()
        assert recorder.errors == []
        ctx.effect(fail)
        await anyio.wait_all_tasks_blocked()
    assert [str(error) for error in recorder.errors] == ["late"]
    assert len(ctx.fiber.effects()) == 2  # the recorder's two listeners
    assert awaited.used


async def test_K69_undoing_during_set_up_cancels_it_and_undoes_what_it_made(ctx: Context) -> None:
    log: list[str] = []

    async def steps() -> AsyncIterator[object]:
        yield noting(log, "first undone")
        log.append("waits")
        await anyio.sleep_forever()
        log.append("never")
        yield noting(log, "never undone")

    async def stubborn() -> Callable[[], None]:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            log.append("swallowed")
        return noting(log, "resource undone")

    for shape in (steps, stubborn):
        handle = ctx.effect(shape)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(5):
            await handle()
    unstarted = ctx.effect(steps)
    await unstarted()
    assert log == ["waits", "first undone", "swallowed", "resource undone"]


async def test_K70_an_async_manager_lives_in_one_task(ctx: Context) -> None:
    tasks_seen: list[int] = []

    @asynccontextmanager
    async def manager() -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            tasks_seen.append(anyio.get_current_task().id)
            tasks.start_soon(anyio.sleep_forever)
            yield
            tasks.cancel_scope.cancel()
        tasks_seen.append(anyio.get_current_task().id)

    handle = ctx.effect(manager())
    with anyio.fail_after(5):
        await handle.ready()

        async def undo() -> None:
            await handle()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(undo)
    assert len(set(tasks_seen)) == 1


async def test_K71_K72_registration_on_an_ended_activation_is_refused(ctx: Context) -> None:
    seen: list[Context] = []
    fiber = ctx.plugin(lambda child: seen.append(child))
    await fiber
    await fiber.restart()
    stale, fresh = seen
    attempts: list[Callable[[], object]] = [
        lambda: stale.effect(lambda: pytest.fail("set-up ran")),
        lambda: stale.provide("thing", 1),
        lambda: stale.plugin(lambda _: None),
        lambda: stale.spawn(anyio.sleep_forever),
    ]
    for register in attempts:
        with pytest.raises(InactiveError) as caught:
            register()
        assert caught.value.code == "INACTIVE_EFFECT"
    fresh.effect(lambda: None)
    await fiber.dispose()
    with pytest.raises(InactiveError):
        fresh.effect(lambda: None)


async def test_K71_what_is_registered_while_pending_belongs_to_the_next_activation(
    ctx: Context,
) -> None:
    log: list[str] = []

    def body(ctx: Context) -> None:
        log.append("body")

    body.inject = ["thing"]  # type: ignore[attr-defined]  # how a function declares its needs
    fiber = ctx.plugin(body)
    fiber.ctx.effect(lambda: noting(log, "early undone"))
    child = fiber.ctx.plugin(lambda _: log.append("child"))
    await ctx.settled()
    assert (fiber.state, child.state, log) == (FiberState.PENDING, FiberState.PENDING, [])
    ctx.provide("thing", 1)
    await ctx.settled()
    assert log == ["body", "child"]
    await fiber.dispose()
    assert log == ["body", "child", "early undone"]


async def test_K50_disposing_a_pending_fiber_unwinds_without_running_its_body(
    ctx: Context,
) -> None:
    log: list[str] = []

    def body(ctx: Context) -> None:
        log.append("body")

    body.inject = ["thing"]  # type: ignore[attr-defined]  # how a function declares its needs
    fiber = ctx.plugin(body)
    fiber.ctx.effect(lambda: noting(log, "undone"))
    await fiber.dispose()
    assert log == ["undone"]


def test_K58_synchronous_use_works_on_a_root_that_was_never_entered() -> None:
    ctx = Context()
    log: list[str] = []
    handle = ctx.effect(lambda: noting(log, "undone"))
    ctx.provide("thing", 7)
    assert ctx.thing == 7
    handle()
    assert log == ["undone"]

    async def never() -> None: ...

    uses: list[Callable[[], object]] = [
        lambda: ctx.plugin(lambda _: None),
        lambda: ctx.spawn(never),
        lambda: ctx.effect(never),
    ]
    for use in uses:
        with pytest.raises(NotEnteredError):
            use()


async def test_K68_ready_waits_for_async_managers_that_a_sync_set_up_brought(
    ctx: Context,
) -> None:
    release = anyio.Event()
    log: list[str] = []

    @asynccontextmanager
    async def slow() -> AsyncIterator[None]:
        await release.wait()
        log.append("entered")
        yield
        log.append("left")

    @asynccontextmanager
    async def broken() -> AsyncIterator[None]:
        await release.wait()
        raise ValueError("entering")
        yield

    def generator() -> Iterator[object]:
        yield slow()

    handles = [ctx.effect(slow), ctx.effect(generator), ctx.effect(broken)]
    outcomes: list[str] = []

    async def wait(handle: Handle) -> None:
        try:
            await handle.ready()
            outcomes.append("ready")
        except ValueError as error:
            outcomes.append(str(error))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for handle in handles:
                tasks.start_soon(wait, handle)
            await anyio.wait_all_tasks_blocked()
            assert (log, outcomes) == ([], [])
            release.set()
        assert log == ["entered", "entered"]
        assert sorted(outcomes) == ["entering", "ready", "ready"]
        for handle in handles:
            await handle()
    assert log == ["entered", "entered", "left", "left"]


async def test_K65_K70_a_manager_that_breaks_by_itself_is_reported_at_once(ctx: Context) -> None:
    errors: list[Exception] = []
    go, reported = anyio.Event(), anyio.Event()

    def note(event: InternalError) -> None:
        errors.append(event.error)
        reported.set()

    async def fail() -> None:
        await go.wait()
        raise RuntimeError("broken")

    @asynccontextmanager
    async def breaking() -> AsyncIterator[None]:
        async with anyio.create_task_group() as tasks:
            _ = tasks.start_soon(fail)
            yield

    def composite() -> Iterator[object]:
        yield breaking()

    ctx.on(InternalError, note)
    handle = ctx.effect(composite)
    with anyio.fail_after(5):
        await handle.ready()
        go.set()
        await reported.wait()
        await handle()
    assert [error.exceptions[0].args for error in errors if isinstance(error, ExceptionGroup)] == [
        ("broken",)
    ]
    assert len(errors) == 1
