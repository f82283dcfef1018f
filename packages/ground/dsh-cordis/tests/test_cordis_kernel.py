"""What holds for the kernel as a whole: order under storms, cost of importing, one root's end."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, ClassVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dsh_cordis import (
    Context,
    Fiber,
    FiberState,
    Handle,
    InactiveError,
    InternalStatus,
    Parallel,
    Service,
    ServiceConflict,
    ServiceUnavailable,
    create_scope,
    scope_of,
)
from dsh_cordis.testing import ErrorRecorder, assert_unloaded

pytest_plugins = ["dsh_cordis.testing"]

LEGAL = {
    ("pending", "loading"),
    ("loading", "active"),
    ("loading", "unloading"),
    ("active", "unloading"),
    ("unloading", "pending"),
    ("unloading", "loading"),
    ("unloading", "failed"),
    ("unloading", "disposed"),
    ("failed", "loading"),
    ("failed", "pending"),
    ("pending", "unloading"),
    ("failed", "unloading"),
}

KEYS = ["a", "b", "c"]


class Balance:
    """Counts what is set up and not undone yet, and notes any wrong order."""

    def __init__(self) -> None:
        self.open: dict[int, list[str]] = {}
        self.wrong: list[str] = []
        self._next = 0

    def plugin(self, needs: str | None, gives: str | None, kind: str) -> Any:
        def set_up(ctx: Context) -> Callable[[], None]:
            self._next += 1
            number = self._next
            self.open[number] = [] if needs is None else [needs]

            def undo() -> None:
                if needs is not None and getattr(ctx, needs, None) is None:
                    self.wrong.append(f"{number} lost {needs} before it was undone")
                del self.open[number]

            if gives is not None:
                with suppress(ServiceConflict):
                    ctx.provide(gives, object())
            return undo

        def sync_body(ctx: Context) -> object:
            return set_up(ctx)

        async def async_body(ctx: Context) -> None:
            def shape() -> object:
                undo = set_up(ctx)

                async def slow() -> None:
                    await anyio.lowlevel.checkpoint()
                    undo()

                return slow

            await anyio.lowlevel.checkpoint()
            ctx.effect(shape)
            await anyio.lowlevel.checkpoint()

        async def nested(ctx: Context) -> None:
            ctx.plugin(self.plugin(None, None, "sync"))
            await ctx.plugin(self.plugin(None, None, "async"))
            ctx.effect(lambda: set_up(ctx))

        body: Any = {"sync": sync_body, "async": async_body, "nested": nested}[kind]
        body.inject = [] if needs is None else [needs]
        return body


Step = tuple[str, int, str | None, str | None, str]

steps = st.lists(
    st.tuples(
        st.sampled_from(["mount", "dispose", "restart", "update", "settle", "yield", "child"]),
        st.integers(0, 9),
        st.sampled_from([None, *KEYS]),
        st.sampled_from([None, *KEYS]),
        st.sampled_from(["sync", "async", "nested"]),
    ),
    max_size=30,
)


async def storm(plan: list[Step]) -> None:
    balance = Balance()
    seen: list[tuple[str, str]] = []
    async with Context() as root:
        recorder = ErrorRecorder(root)
        root.on(
            InternalStatus,
            lambda event: seen.append((event.previous.value, event.fiber.state.value)),
        )
        fibers: list[Fiber] = []
        for action, index, needs, gives, kind in plan:
            fiber = fibers[index % len(fibers)] if fibers else None
            if action == "mount" or fiber is None:
                fibers.append(root.plugin(balance.plugin(needs, gives, kind)))
            elif action == "settle":
                with anyio.fail_after(5):
                    await root.settled()
            elif action == "yield":
                await anyio.lowlevel.checkpoint()
            else:
                act(action, fiber, balance.plugin(needs, gives, kind), fibers)
        with anyio.fail_after(5):
            await root.settled()
        for fiber in fibers:
            parent = fiber.parent
            waits = fiber.missing() or (parent and parent.state is not FiberState.ACTIVE)
            assert fiber.is_settled
            assert (fiber.state is FiberState.PENDING) == bool(fiber.uid and waits)
    assert (recorder.errors, balance.wrong, balance.open) == ([], [], {})
    assert set(seen) <= LEGAL
    assert_unloaded(root)


def act(action: str, fiber: Fiber, plugin: Any, fibers: list[Fiber]) -> None:
    try:
        match action:
            case "dispose":
                fiber.dispose()
            case "restart":
                fiber.restart()
            case "update":
                fiber.update(object())
            case _:
                fibers.append(fiber.ctx.plugin(plugin))
    except InactiveError:
        return


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(plan=steps)
def test_K14_K37_K60_any_storm_of_requests_ends_clean(backend: str, plan: list[Step]) -> None:
    anyio.run(storm, plan, backend=backend)


def test_importing_the_kernel_brings_neither_structlog_nor_pydantic() -> None:
    code = (
        "import sys, dsh_cordis; print([name for name in ('structlog', 'pydantic', 'asyncio', "
        "'trio', 'pytest') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_an_abandoned_root_dies_with_its_event_loop(backend: str) -> None:
    @asynccontextmanager
    async def manager() -> AsyncIterator[None]:
        yield

    async def abandon() -> None:
        root = Context()
        await root.__aenter__()

        async def body(ctx: Context) -> object:
            ctx.effect(manager())
            await anyio.lowlevel.checkpoint()
            return lambda: anyio.lowlevel.checkpoint()

        root.spawn(anyio.sleep_forever)
        await root.plugin(body)

    with anyio.from_thread.start_blocking_portal(backend) as portal:
        portal.call(abandon)


async def test_K52_K63_handles_awaited_from_inside_their_own_undo_return_at_once(
    ctx: Context,
) -> None:
    log: list[str] = []
    handles: list[Handle] = []

    async def undo() -> None:
        await handles[0]()
        log.append("undone")

    handles.append(ctx.effect(lambda: undo))
    with anyio.fail_after(5):
        await handles[0]()
    assert log == ["undone"]

    def composite() -> Iterator[object]:
        def child(ctx: Context) -> object:
            async def undo_child() -> None:
                await handles[1]()
                log.append("child undone")

            return undo_child

        yield ctx.plugin(child)

    handles.append(ctx.effect(composite))
    await ctx.settled()
    with anyio.fail_after(5):
        await handles[1]()
    assert log == ["undone", "child undone"]


async def test_K52_a_dependent_that_withdraws_what_it_depends_on_does_not_hang(
    ctx: Context,
) -> None:
    log: list[str] = []
    claim = ctx.provide("thing", 1)

    def dependent(ctx: Context) -> object:
        async def undo() -> None:
            await claim()
            log.append("undone")

        return undo

    dependent.inject = ["thing"]  # type: ignore[attr-defined]  # how a function declares its needs
    fiber = ctx.plugin(dependent)
    await fiber
    with anyio.fail_after(5):
        await fiber.dispose()
    await anyio.wait_all_tasks_blocked()
    assert (log, claim.used) == (["undone"], True)


async def test_K52_an_effect_that_disposes_its_own_fiber_while_undone_by_hand(
    ctx: Context,
) -> None:
    log: list[str] = []
    handles: list[Handle] = []

    def body(ctx: Context) -> None:
        async def undo() -> None:
            await ctx.fiber.dispose()
            log.append("undone")

        handles.append(ctx.effect(lambda: undo))

    fiber = ctx.plugin(body)
    await fiber
    with anyio.fail_after(5):
        await handles[0]()
        await fiber.dispose()
    assert (log, fiber.state) == (["undone"], FiberState.DISPOSED)


async def test_K45_K16_a_body_that_fails_because_its_service_left_stays_failed(
    ctx: Context,
) -> None:
    async def body(ctx: Context) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise RuntimeError("clean-up")

    body.inject = ["thing"]  # type: ignore[attr-defined]  # how a function declares its needs
    recorder = ErrorRecorder(ctx)
    claim = ctx.provide("thing", 1)
    fiber = ctx.plugin(body)
    await anyio.wait_all_tasks_blocked()
    with anyio.fail_after(5):
        await claim()
    assert [str(error) for error in recorder.errors] == ["clean-up"]
    assert fiber.state is FiberState.PENDING


async def test_K73_effects_show_live_registrations_as_a_tree(ctx: Context) -> None:
    def composite() -> Iterator[object]:
        yield ctx.effect(lambda: None, label="inner")
        yield lambda: None

    handle = ctx.effect(composite, label="outer")
    ctx.provide("thing", 1)
    shape = [(info.label, [part.label for part in info.children]) for info in ctx.fiber.effects()]
    assert shape == [("outer", ["inner", "outer"]), ("service 'thing'", [])]
    handle()
    assert [info.label for info in ctx.fiber.effects()] == ["service 'thing'"]


async def test_K25_the_log_carries_the_fiber_and_in_a_service_the_service(
    ctx: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    class Logging(Service):
        key = "logging_service"

        def say(self) -> None:
            self.ctx.log.info("said.by.service")

    def consumer(ctx: Context) -> None:
        ctx.log.info("said.by.plugin")
        ctx.logging_service.say()

    consumer.inject = ["logging_service"]  # type: ignore[attr-defined]  # declares its needs
    ctx.plugin(Logging)
    ctx.plugin(consumer)
    await ctx.settled()
    lines = capsys.readouterr().out.splitlines()
    assert "consumer" in next(line for line in lines if "said.by.plugin" in line)
    assert "logging_service" in next(line for line in lines if "said.by.service" in line)


async def test_K14_a_failing_provider_takes_its_dependents_down_first(ctx: Context) -> None:
    log: list[str] = []
    go = anyio.Event()

    def provider(ctx: Context) -> object:
        async def task() -> None:
            await go.wait()
            raise RuntimeError("task")

        ctx.provide("thing", 1)
        ctx.spawn(task)
        return lambda: log.append("provider")

    def chain(name: str, needs: str) -> Any:
        def body(ctx: Context) -> object:
            ctx.provide(name, 1)

            async def undo() -> None:
                await anyio.lowlevel.checkpoint()
                log.append(name)

            return undo

        body.inject = [needs]  # type: ignore[attr-defined]  # how a function declares its needs
        return body

    fiber = ctx.plugin(provider)
    ctx.plugin(chain("middle", "thing"))
    last = ctx.plugin(chain("last", "middle"))
    with anyio.fail_after(5):
        await last.active()
        go.set()
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(RuntimeError, match="task"):
            await fiber
    assert log == ["last", "middle", "provider"]
    assert (fiber.state, last.state) == (FiberState.FAILED, FiberState.PENDING)


async def test_K14_independent_dependents_unwind_side_by_side(ctx: Context) -> None:
    meeting = [anyio.Event(), anyio.Event()]

    def dependent(ctx: Context, own: int) -> object:
        async def undo() -> None:
            meeting[own].set()
            await meeting[1 - own].wait()

        return undo

    dependent.inject = ["thing"]  # type: ignore[attr-defined]  # how a function declares its needs
    claim = ctx.provide("thing", 1)
    ctx.plugin(dependent, 0)
    ctx.plugin(dependent, 1)
    with anyio.fail_after(5):
        await ctx.settled()
        await claim()


async def test_K34_two_definitions_that_share_one_function_stay_apart(ctx: Context) -> None:
    seen: list[str] = []

    def shared(ctx: Context) -> None:
        seen.append(ctx.fiber.name)

    class Definition:
        def __init__(self, name: str) -> None:
            self.name = name
            self.apply = shared

    first, second = Definition("first"), Definition("second")
    fibers = [ctx.plugin(first), ctx.plugin(second)]
    await ctx.settled()
    await ctx.unplug(first)
    assert seen == ["first", "second"]
    assert [fiber.state.value for fiber in fibers] == ["disposed", "active"]


async def test_K44_an_overtaken_update_shares_the_newer_outcome(ctx: Context) -> None:
    def body(ctx: Context, config: str) -> None:
        if config == "bad":
            raise RuntimeError(config)

    fiber = ctx.plugin(body, "good")
    await fiber
    first = fiber.update("fine")
    second = fiber.update("bad")
    with anyio.fail_after(5):
        for outcome in (first, second):
            with pytest.raises(RuntimeError, match="bad"):
                await outcome
        await fiber.update("good")
    assert fiber.state is FiberState.ACTIVE


async def test_K53_dispose_does_not_wait_for_calls_in_somebody_elses_dispatch(
    ctx: Context,
) -> None:
    release = anyio.Event()
    log: list[str] = []

    class Together(Parallel, frozen=True):
        """All at once."""

        name: ClassVar[str] = "kernel-test/together"

    def body(ctx: Context) -> None:
        async def listen(event: Together) -> None:
            await release.wait()
            with pytest.raises(InactiveError):
                ctx.effect(lambda: None)
            log.append("went on")

        ctx.on(Together, listen)

    fiber = ctx.plugin(body)
    await fiber
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ctx.parallel, Together())
            await anyio.wait_all_tasks_blocked()
            await fiber.dispose()
            log.append("disposed")
            release.set()
    assert log == ["disposed", "went on"]


async def test_K62_an_unload_started_inside_a_set_up_waits_for_what_it_collects(
    ctx: Context,
) -> None:
    log: list[str] = []

    def body(ctx: Context) -> None:
        def composite() -> Iterator[object]:
            yield lambda: log.append("first undone")
            ctx.fiber.dispose()
            log.append("set-up ends")
            yield lambda: log.append("second undone")

        ctx.effect(composite)

    fiber = ctx.plugin(body)
    with anyio.fail_after(5):
        await fiber
    assert fiber.state is FiberState.DISPOSED
    assert log == ["set-up ends", "second undone", "first undone"]


async def test_K39_a_body_that_goes_on_after_its_disposal_runs_into_a_quiet_refusal(
    ctx: Context,
) -> None:
    recorder = ErrorRecorder(ctx)

    def body(ctx: Context) -> None:
        ctx.fiber.dispose()
        ctx.effect(lambda: None)

    fiber = ctx.plugin(body)
    with anyio.fail_after(5):
        await fiber
    assert (fiber.state, recorder.errors) == (FiberState.DISPOSED, [])


async def test_K19_K20_views_made_through_scopes_keep_owner_and_config(ctx: Context) -> None:
    key = object()

    class Registry(Service):
        key = "registry_service"

        def owner(self) -> tuple[object, dict[str, object]]:
            return scope_of(self.ctx), self.intercepted()

    ctx.plugin(Registry)
    await ctx.settled()
    scope = create_scope(ctx.intercept("registry_service", {"a": 1}), key)
    assert scope.ctx.registry_service.owner() == (key, {"a": 1})
    assert ctx.registry_service.owner() == (None, {})

    def below(ctx: Context) -> None:
        with pytest.raises(ServiceUnavailable):
            _ = ctx.registry_service

    await scope.ctx.plugin(below)


async def test_K48_an_interrupt_in_a_disposer_leaves_the_rest_to_be_undone() -> None:
    log: list[str] = []

    def interrupt() -> None:
        log.append("interrupt")
        raise KeyboardInterrupt

    def body(ctx: Context) -> None:
        ctx.effect(lambda: lambda: log.append("older"))
        ctx.effect(lambda: interrupt)

    async with Context() as root:
        fiber = root.plugin(body)
        await fiber
        with pytest.raises(KeyboardInterrupt):
            await fiber.dispose()
    assert log == ["interrupt", "older"]


async def test_K48_K66_an_interrupt_by_hand_leaves_the_older_parts_to_the_unload() -> None:
    log: list[str] = []

    def interrupt() -> None:
        log.append("interrupt")
        raise KeyboardInterrupt

    def parts() -> Iterator[Callable[[], object]]:
        yield lambda: log.append("older")
        yield interrupt

    async with Context() as root:
        handle = root.effect(parts)
        with pytest.raises(KeyboardInterrupt):
            handle()
    assert log == ["interrupt", "older"]
