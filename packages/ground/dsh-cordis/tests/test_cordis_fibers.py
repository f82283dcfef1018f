import gc
import sys
import weakref
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from traceback import walk_tb
from types import ModuleType
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import structlog

from dsh_cordis import (
    ConfigError,
    Context,
    DeadlockError,
    Fiber,
    FiberState,
    InactiveError,
    InternalPlugin,
    InternalStatus,
    InternalUpdate,
    Next,
    Service,
)
from dsh_cordis.testing import ErrorRecorder

pytest_plugins = ["dsh_cordis.testing"]


class BoomError(Exception):
    pass


async def test_K30_every_plugin_shape_runs_and_its_disposer_too(ctx: Context) -> None:
    log: list[str] = []

    def returns_disposer(ctx: Context, config: str) -> object:
        log.append(config)
        return lambda: log.append("sync undone")

    async def coroutine(ctx: Context) -> object:
        await anyio.lowlevel.checkpoint()
        log.append("async")
        return lambda: log.append("async undone")

    def generator(ctx: Context) -> Iterator[object]:
        yield lambda: log.append("generator undone")

    async def async_generator(ctx: Context) -> AsyncIterator[object]:
        yield lambda: log.append("async generator undone")

    class Holder(Service):
        key = "holder"

    class WithApply:
        def apply(self, ctx: Context) -> None:
            log.append("object")

    module = ModuleType("some.module")
    module.apply = lambda ctx: log.append("module")  # type: ignore[attr-defined]  # a made-up module

    fibers = [
        ctx.plugin(returns_disposer, "sync"),
        ctx.plugin(coroutine),
        ctx.plugin(generator),
        ctx.plugin(async_generator),
        ctx.plugin(Holder),
        ctx.plugin(WithApply()),
        ctx.plugin(module),
    ]
    with anyio.fail_after(5):
        await ctx.settled()
        assert [fiber.state for fiber in fibers] == [FiberState.ACTIVE] * 7
        assert sorted(log) == ["async", "module", "object", "sync"]
        log.clear()
        for fiber in reversed(fibers):
            await fiber.dispose()
    assert log == ["async generator undone", "generator undone", "async undone", "sync undone"]


@pytest.mark.parametrize(
    "nonsense", [3, "text", lambda: None, lambda a, b, c: None, None], ids=repr
)
async def test_K30_other_shapes_are_refused_without_a_trace(ctx: Context, nonsense: Any) -> None:
    with pytest.raises(TypeError):
        ctx.plugin(nonsense)
    assert ctx.fiber.effects() == []


async def test_K31_K32_plugin_is_synchronous_and_await_means_settled(ctx: Context) -> None:
    log: list[str] = []

    def waits(ctx: Context) -> None: ...

    waits.inject = ["nothing"]  # type: ignore[attr-defined]  # how a function declares its needs
    fiber = ctx.plugin(lambda _: log.append("body"))
    pending = ctx.plugin(waits)
    assert (fiber.state, pending.state, log) == (FiberState.LOADING, FiberState.PENDING, [])
    with anyio.fail_after(5):
        await fiber
        await pending
    assert (fiber.state, pending.state, log) == (FiberState.ACTIVE, FiberState.PENDING, ["body"])


async def test_K33_two_mounts_are_independent_and_unplug_disposes_all(ctx: Context) -> None:
    log: list[str] = []

    def body(ctx: Context, config: str) -> object:
        log.append(config)
        return lambda: log.append(f"{config} undone")

    first, second = ctx.plugin(body, "a"), ctx.plugin(body, "b")
    await ctx.settled()
    uids = {first.uid, second.uid}
    await ctx.unplug(body)
    third = ctx.plugin(body, "c")
    await third
    assert log == ["a", "b", "a undone", "b undone", "c"]
    assert third.uid not in uids
    assert (first.uid, second.uid) == (None, None)


async def test_K35_an_observer_may_veto_or_add_requirements(ctx: Context) -> None:
    def observe(event: InternalPlugin) -> None:
        if event.fiber.name == "vetoed":
            raise BoomError("no")
        if event.fiber.name == "delayed" and event.fiber.uid is not None:
            assert event.fiber.state is FiberState.PENDING
            event.fiber.require("thing")

    def vetoed(ctx: Context) -> None: ...
    def delayed(ctx: Context) -> None: ...

    ctx.on(InternalPlugin, observe)
    before = len(ctx.fiber.effects())
    with pytest.raises(BoomError):
        ctx.plugin(vetoed)
    assert len(ctx.fiber.effects()) == before
    fiber = ctx.plugin(delayed)
    assert (fiber.state, fiber.missing()) == (FiberState.PENDING, ["thing"])
    ctx.provide("thing", 1)
    await fiber.active()


async def test_K36_a_nameless_fiber_reports_its_nearest_named_ancestor(ctx: Context) -> None:
    inner: list[Fiber] = []

    def named(ctx: Context) -> None:
        inner.append(ctx.plugin(lambda _: None))

    await ctx.plugin(named)
    assert inner[0].name == "named"
    assert ctx.plugin(lambda _: None).name == "root"
    await ctx.settled()


async def test_K37_K45_a_failing_load_unwinds_before_failed_is_entered(ctx: Context) -> None:
    recorder = ErrorRecorder(ctx)
    log: list[str] = []

    async def fails(ctx: Context) -> None:
        ctx.effect(lambda: lambda: log.append("undone"))
        ctx.provide("thing", 1)
        await anyio.lowlevel.checkpoint()
        raise BoomError("body")

    fiber = ctx.plugin(fails)
    caught: list[BaseException] = []
    with anyio.fail_after(5):
        for _ in range(2):
            with pytest.raises(BoomError) as info:
                await fiber
            caught.append(info.value)
    assert caught[0] is caught[1] is fiber.error
    assert recorder.states_of(fiber) == ["loading", "unloading", "failed"]
    assert (log, recorder.errors) == (["undone"], [fiber.error])
    assert ctx.get("thing") is None
    with pytest.raises(InactiveError):
        fiber.ctx.effect(lambda: None)


async def test_K45_an_error_inherited_by_awaiting_is_reported_once(ctx: Context) -> None:
    recorder = ErrorRecorder(ctx)

    async def child(ctx: Context) -> None:
        raise BoomError("child")

    async def parent(ctx: Context) -> None:
        await ctx.plugin(child)

    async def grandparent(ctx: Context) -> None:
        await ctx.plugin(parent)

    with anyio.fail_after(5), pytest.raises(BoomError) as caught:
        await ctx.plugin(grandparent)
    assert recorder.errors == [caught.value]


async def test_K46_a_child_that_is_not_awaited_fails_alone(ctx: Context) -> None:
    children: list[Fiber] = []

    async def child(ctx: Context) -> None:
        raise BoomError("child")

    def parent(ctx: Context) -> None:
        children.append(ctx.plugin(child))

    fiber = ctx.plugin(parent)
    with anyio.fail_after(5), pytest.raises(BoomError):
        await ctx.settled()
    assert (fiber.state, children[0].state) == (FiberState.ACTIVE, FiberState.FAILED)


async def test_K38_requests_during_a_load_lead_to_one_more_activation(ctx: Context) -> None:
    configs: list[object] = []
    release = anyio.Event()

    async def body(ctx: Context, config: object) -> None:
        configs.append(config)
        await release.wait()

    fiber = ctx.plugin(body, 1)
    await anyio.wait_all_tasks_blocked()
    with anyio.fail_after(5):
        fiber.update(2)
        latest = fiber.update(3)
        release.set()
        await latest
    assert (configs, fiber.state, fiber.config) == ([1, 3], FiberState.ACTIVE, 3)


async def test_K39_a_pointless_load_is_cancelled_and_unwound(ctx: Context) -> None:
    recorder = ErrorRecorder(ctx)
    log: list[str] = []

    async def cancelled(ctx: Context) -> None:
        ctx.effect(lambda: lambda: log.append("undone"))
        await anyio.sleep_forever()

    async def swallows(ctx: Context) -> object:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            log.append("swallowed")
        return lambda: log.append("returned undone")

    def wished_before_it_began(ctx: Context) -> object:
        ctx.fiber.dispose()
        return cancelled(ctx)

    never = ctx.plugin(wished_before_it_began)
    with anyio.fail_after(5):
        await never
    for body in (cancelled, swallows):
        fiber = ctx.plugin(body)
        await anyio.wait_all_tasks_blocked()
        with anyio.fail_after(5):
            await fiber.dispose()
        assert fiber.state is FiberState.DISPOSED
    assert log == ["undone", "swallowed", "returned undone"]
    assert recorder.errors == []


async def test_K40_cancelling_a_caller_of_dispose_ends_only_its_wait(ctx: Context) -> None:
    gate = anyio.Event()
    log: list[str] = []

    async def undo() -> None:
        await gate.wait()
        log.append("undone")

    fiber = ctx.plugin(lambda child: child.effect(lambda: undo))
    await fiber
    with anyio.move_on_after(0) as scope:
        await fiber.dispose()
    assert scope.cancelled_caught
    assert (fiber.state, log) == (FiberState.UNLOADING, [])
    gate.set()
    with anyio.fail_after(5):
        await fiber.dispose()
    assert log == ["undone"]


class Model:
    """Stands for a pydantic model: all the kernel knows is `model_validate` and `errors`."""

    def __init__(self, size: int) -> None:
        self.size = size

    class InvalidError(Exception):
        def errors(self) -> list[dict[str, Any]]:
            return [{"loc": ("size", 0), "msg": "not a number"}, {"loc": (), "msg": "bad"}]

    @classmethod
    def model_validate(cls, raw: Any) -> "Model":
        if not isinstance(raw.get("size", 1), int):
            raise cls.InvalidError
        return cls(raw.get("size", 1))


async def test_K41_K42_config_is_validated_before_the_body_and_kept_on_a_bad_update(
    ctx: Context,
) -> None:
    sizes: list[int] = []

    def body(ctx: Context, config: Model) -> None:
        sizes.append(config.size)

    bad = ctx.plugin(body, {"size": "x"})
    with pytest.raises(ConfigError) as caught:
        await bad
    assert caught.value.problems == (("size.0", "not a number"), ("", "bad"))
    await bad.dispose()
    fiber = ctx.plugin(body)
    await fiber
    with pytest.raises(ConfigError):
        await fiber.update({"size": "y"})
    assert (fiber.state, fiber.config) == (FiberState.ACTIVE, None)
    await fiber.update({"size": 5})
    assert sizes == [1, 5]


async def test_K43_an_update_hook_may_take_the_new_config_over(ctx: Context) -> None:
    bodies: list[object] = []
    taken: list[object] = []

    def body(ctx: Context, config: int) -> None:
        bodies.append(config)

        async def hook(event: InternalUpdate, rest: Next[None]) -> None:
            taken.append(event.config)
            if event.config == 3:
                await rest()

        ctx.on(InternalUpdate, hook)

    fiber = ctx.plugin(body, 1)
    other = ctx.plugin(body, 10)
    await ctx.settled()
    with anyio.fail_after(5):
        await fiber.update(2)
        assert (bodies, taken) == ([1, 10], [2])
        await fiber.update(3)
        await fiber.update(4)
    assert (bodies, taken) == ([1, 10, 3], [2, 3, 4])
    assert (fiber.config, other.config) == (3, 10)


async def test_K43_K47_hooks_end_with_the_activation_that_they_belong_to(ctx: Context) -> None:
    log: list[str] = []
    entered = anyio.Event()

    async def hook(event: InternalUpdate, rest: Next[None]) -> None:
        entered.set()
        try:
            await anyio.sleep_forever()
        finally:
            log.append("hook")

    def body(ctx: Context, config: int) -> None:
        ctx.effect(lambda: lambda: log.append("effect"))
        ctx.on(InternalUpdate, hook)

    fiber = ctx.plugin(body, 1)
    await fiber
    with anyio.fail_after(5):
        waiting = fiber.update(2)
        await entered.wait()
        await fiber.dispose()
        with pytest.raises(InactiveError):
            await waiting
    assert log == ["hook", "effect"]


async def test_K44_after_disposal_was_requested_update_and_restart_raise(ctx: Context) -> None:
    gate = anyio.Event()
    fiber = ctx.plugin(lambda child: child.effect(lambda: gate.wait))
    await fiber
    waiting = fiber.restart()
    fiber.dispose()
    for ask in (fiber.restart, lambda: fiber.update(1)):
        with pytest.raises(InactiveError):
            ask()
    gate.set()
    with anyio.fail_after(5), pytest.raises(InactiveError):
        await waiting
    assert fiber.state is FiberState.DISPOSED


async def test_K44_update_on_a_failed_fiber_tries_again(ctx: Context) -> None:
    def body(ctx: Context, config: bool) -> None:
        if config:
            raise BoomError("config")

    fiber = ctx.plugin(body, True)
    with pytest.raises(BoomError):
        await fiber
    await fiber.update(False)
    assert (fiber.state, fiber.error) == (FiberState.ACTIVE, None)


async def test_K47_a_failing_background_task_fails_its_fiber_alone(ctx: Context) -> None:
    recorder = ErrorRecorder(ctx)
    go = anyio.Event()
    log: list[str] = []

    async def task() -> None:
        await go.wait()
        raise BoomError("task")

    async def sibling() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            log.append("sibling ended")

    def body(ctx: Context) -> None:
        ctx.spawn(sibling)
        ctx.spawn(task)

    fiber = ctx.plugin(body)
    other = ctx.plugin(lambda _: None)
    await ctx.settled()
    await anyio.wait_all_tasks_blocked()
    go.set()
    with anyio.fail_after(5):
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(BoomError):
            await fiber
    assert (fiber.state, other.state) == (FiberState.FAILED, FiberState.ACTIVE)
    assert (log, recorder.errors) == (["sibling ended"], [fiber.error])


async def test_K47_a_task_that_returns_removes_its_effect_and_disposal_cancels_it(
    ctx: Context,
) -> None:
    log: list[str] = []

    async def short() -> None:
        log.append("short")

    async def long() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            log.append("cancelled")

    ctx.spawn(short)
    handle = ctx.spawn(long)
    await anyio.wait_all_tasks_blocked()
    assert [info.label for info in ctx.fiber.effects()] == ["long"]
    with anyio.fail_after(5):
        await handle()
    assert log == ["short", "cancelled"]


async def test_K49_every_call_of_dispose_returns_after_the_whole_subtree(ctx: Context) -> None:
    gate = anyio.Event()
    log: list[str] = []

    async def undo() -> None:
        await gate.wait()
        log.append("undone")

    def parent(ctx: Context) -> None:
        ctx.plugin(lambda child: child.effect(lambda: undo))

    fiber = ctx.plugin(parent)
    await ctx.settled()

    async def dispose() -> None:
        await fiber.dispose()
        log.append("returned")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(dispose)
            await anyio.wait_all_tasks_blocked()
            assert log == []
            gate.set()
    assert log == ["undone", "returned", "returned", "returned"]
    assert fiber.uid is None


async def test_K51_a_raising_observer_starves_nobody(ctx: Context) -> None:
    seen: list[str] = []

    def bad(event: InternalStatus) -> None:
        raise BoomError("observer")

    def bad_disposal(event: InternalPlugin) -> None:
        if event.fiber.uid is None:
            raise BoomError("observer")

    ctx.on(InternalStatus, bad)
    ctx.on(InternalPlugin, bad_disposal)
    ctx.on(InternalStatus, lambda event: seen.append(event.fiber.state.value))
    ctx.on(InternalPlugin, lambda event: seen.append(str(event.fiber.uid is None)))
    fiber = ctx.plugin(lambda _: None)
    await fiber
    await fiber.dispose()
    assert seen == ["False", "loading", "active", "unloading", "disposed", "True"]


async def test_K52_waits_that_could_never_end_do_not_hang(ctx: Context) -> None:
    log: list[str] = []

    async def disposes_itself(ctx: Context) -> None:
        await ctx.fiber.dispose()
        log.append("never")

    async def awaits_itself(ctx: Context) -> None:
        try:
            await ctx.fiber
        except DeadlockError:
            log.append("refused")

    async def undo_that_disposes(fiber: Fiber) -> None:
        await fiber.dispose()
        log.append("returned")
        with pytest.raises(DeadlockError):
            await fiber

    async def disposes_in_disposer(ctx: Context) -> object:
        return lambda: undo_that_disposes(ctx.fiber)

    async def child_disposes_parent(ctx: Context) -> None:
        parent = ctx.fiber

        async def undo() -> None:
            await parent.dispose()
            log.append("parent recorded")

        await ctx.plugin(lambda child: child.effect(lambda: undo))

    with anyio.fail_after(5):
        first = ctx.plugin(disposes_itself)
        await first
        assert first.state is FiberState.DISPOSED
        await ctx.plugin(awaits_itself)
        third = ctx.plugin(disposes_in_disposer)
        await third
        await third.dispose()
        fourth = ctx.plugin(child_disposes_parent)
        await fourth
        with pytest.raises(InactiveError):  # overtaken by the disposal that its child wished
            await fourth.restart()
    assert log == ["refused", "returned", "parent recorded"]
    assert fourth.state is FiberState.DISPOSED


async def test_K52_a_background_task_may_dispose_its_own_fiber(ctx: Context) -> None:
    fibers: list[Fiber] = []

    async def task() -> None:
        await fibers[0].dispose()

    fibers.append(ctx.plugin(lambda child: child.spawn(task) and None))
    await fibers[0]
    with anyio.fail_after(5):
        await anyio.wait_all_tasks_blocked()
        await fibers[0].dispose()
    assert fibers[0].state is FiberState.DISPOSED


async def test_K54_a_disposed_fiber_is_collectable(ctx: Context) -> None:
    class Thing(Service):
        key = "thing"

    refs: list[weakref.ref[Any]] = []

    async def body(ctx: Context) -> None:
        await ctx.plugin(Thing)
        ctx.effect(lambda: None)
        ctx.on(InternalStatus, lambda event: None)
        refs.extend([weakref.ref(ctx), weakref.ref(ctx.fiber)])
        service = ctx.get("thing")
        refs.append(weakref.ref(service))

    with anyio.fail_after(5):
        await ctx.plugin(body)
        await ctx.unplug(body)
        await anyio.wait_all_tasks_blocked()
    gc.collect()
    assert [ref() for ref in refs] == [None, None, None]


async def test_K55_a_root_may_be_closed_by_another_task_and_is_inactive_then() -> None:
    root = Context()
    log: list[str] = []

    async def open_it() -> None:
        await root.__aenter__()
        root.effect(lambda: lambda: log.append("undone"))

    async def close_it() -> None:
        await root.__aexit__(None, None, None)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(open_it)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close_it)
    assert log == ["undone"]
    with pytest.raises(InactiveError):
        root.effect(lambda: None)


async def test_K48_outer_cancellation_disposes_the_tree_in_order() -> None:
    log: list[str] = []

    async def undo() -> None:
        await anyio.lowlevel.checkpoint()
        log.append("undone")

    with anyio.fail_after(5):
        with anyio.CancelScope() as scope:
            async with Context() as root:
                await root.plugin(lambda ctx: ctx.effect(lambda: undo))
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
    assert log == ["undone"]


async def test_K48_system_exit_in_a_body_disposes_the_tree_and_is_raised_again() -> None:
    async def leaves(ctx: Context) -> None:
        await anyio.lowlevel.checkpoint()
        raise SystemExit(3)

    log: list[str] = []

    async def run() -> None:
        async with Context() as root:
            root.plugin(lambda ctx: ctx.effect(lambda: lambda: log.append("undone")))
            root.plugin(leaves)
            await anyio.wait_all_tasks_blocked()

    with anyio.fail_after(5), pytest.raises(SystemExit):
        await run()
    assert log == ["undone"]


variable: ContextVar[str] = ContextVar("variable", default="unset")


async def test_K56_a_body_runs_in_the_context_variables_of_its_mount(ctx: Context) -> None:
    seen: list[str] = []

    async def body(ctx: Context) -> object:
        seen.append(variable.get())
        variable.set("changed by the body")
        return lambda: seen.append(variable.get())

    token = variable.set("at mount")
    fiber = ctx.plugin(body)
    variable.reset(token)
    await fiber
    await fiber.restart()
    await fiber.dispose()
    assert seen == ["at mount", "changed by the body"] * 2


async def test_K56_a_disposer_may_close_what_the_body_left_open(ctx: Context) -> None:
    log: list[str] = []

    async def body(ctx: Context) -> object:
        tasks = anyio.create_task_group()
        await tasks.__aenter__()

        async def worker() -> None:
            try:
                await anyio.sleep_forever()
            finally:
                log.append("worker ended")

        tasks.start_soon(worker)

        async def close() -> None:
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(None, None, None)
            log.append("closed")

        return close

    with anyio.fail_after(5):
        fiber = ctx.plugin(body)
        await fiber
        await anyio.wait_all_tasks_blocked()
        await fiber.dispose()
    assert log == ["worker ended", "closed"]


async def test_K57_three_thousand_nested_plugins_mount_and_unwind(ctx: Context) -> None:
    undone: list[int] = []

    def sync_level(depth: int) -> Any:
        def body(ctx: Context) -> None:
            ctx.effect(lambda: lambda: undone.append(depth))
            if depth < 3000:
                ctx.plugin(sync_level(depth + 1))

        return body

    def awaiting_level(depth: int) -> Any:
        async def body(ctx: Context) -> None:
            if depth < 3000:
                await ctx.plugin(awaiting_level(depth + 1))

        return body

    with anyio.fail_after(60):
        first = ctx.plugin(sync_level(1))
        await ctx.settled()
        await first.dispose()
        assert undone == list(range(3000, 0, -1))
        second = ctx.plugin(awaiting_level(1))
        await second
        await second.dispose()


async def test_K57_one_error_passes_a_thousand_awaiting_parents(ctx: Context) -> None:
    def level(depth: int) -> Any:
        async def body(ctx: Context) -> None:
            if depth == 1000:
                raise BoomError("bottom")
            await ctx.plugin(level(depth + 1))

        return body

    recorder = ErrorRecorder(ctx)
    with anyio.fail_after(30), pytest.raises(BoomError) as caught:
        await ctx.plugin(level(1))
    assert len(recorder.errors) == 1
    assert len(list(walk_tb(caught.value.__traceback__))) < 50


async def test_a_fiber_as_a_context_manager_waits_for_active_and_disposes(ctx: Context) -> None:
    async with ctx.plugin(lambda _: None) as fiber:
        assert fiber.state.value == "active"
    assert fiber.state.value == "disposed"

    def fails(ctx: Context) -> None:
        raise BoomError("no")

    failing = ctx.plugin(fails)
    with pytest.raises(BoomError):
        async with failing:
            pytest.fail("entered")
    assert failing.state is FiberState.DISPOSED


async def test_settled_raises_all_failures_as_a_group(ctx: Context) -> None:
    def fails(ctx: Context, config: str) -> None:
        raise BoomError(config)

    ctx.plugin(fails, "a")
    ctx.plugin(fails, "b")
    with pytest.raises(ExceptionGroup) as caught:
        await ctx.settled()
    assert [str(error) for error in caught.value.exceptions] == ["a", "b"]

    async def asks(ctx: Context) -> None:
        with pytest.raises(DeadlockError):
            await ctx.settled()

    await ctx.plugin(asks)


async def test_a_logger_that_raises_stops_nothing_and_is_heard(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[BaseException] = []

    def broken(*_: object) -> str:
        raise RuntimeError("no room for logs")

    def body(ctx: Context) -> None:
        raise BoomError

    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: heard.append(error))
    processors = structlog.get_config()["processors"]
    structlog.configure(processors=[broken])
    try:
        fiber = ctx.plugin(body)
        with anyio.fail_after(5), pytest.raises(BoomError):
            await fiber
    finally:
        structlog.configure(processors=processors)
    assert fiber.state is FiberState.FAILED
    assert [str(error) for error in heard] == ["no room for logs"]
    assert "BoomError()" in heard[0].__notes__[0]
    ok = ctx.plugin(lambda ctx: None)
    with anyio.fail_after(5):
        await ok
