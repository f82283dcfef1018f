"""What holds in the long run: order whatever happens, and no growth."""

import gc
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable
from typing import Any, ClassVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from typing_extensions import override

from dsh_cordis import Context, Emit, Fiber, FiberState, InactiveError, Service, ServiceConflict
from dsh_cordis.testing import assert_unloaded

pytest_plugins = ["dsh_cordis.testing"]


class Beat(Emit, frozen=True):
    """A heart beats."""

    name: ClassVar[str] = "soak/beat"
    count: int


class Store(Service):
    key: ClassVar[str] = "store"

    def __init__(self, ctx: Context, config: object = None) -> None:
        super().__init__(ctx)
        self.names: list[str] = []

    @override
    async def init(self) -> None:
        await anyio.lowlevel.checkpoint()

    def register(self, name: str) -> None:
        self.ctx.effect(lambda: self._enter(name))

    def _enter(self, name: str) -> Callable[[], None]:
        self.names.append(name)
        return lambda: self.names.remove(name)


class NeedsStore(Context):
    store: Store


def leaf(ctx: NeedsStore, name: str) -> None:
    ctx.on(Beat, lambda event: None)
    ctx.on(Beat, hear_late)
    ctx.store.register(name)


async def hear_late(event: Beat) -> None:
    await anyio.lowlevel.checkpoint()


async def branch(ctx: NeedsStore, name: str) -> None:
    ctx.spawn(anyio.sleep_forever)
    await ctx.plugin(leaf, f"{name}/1")
    ctx.plugin(leaf, f"{name}/2")
    ctx.inject(["late"], leaf, f"{name}/3")


def tree(ctx: Context) -> None:
    ctx.plugin(branch, "a")
    ctx.plugin(Store)
    ctx.plugin(branch, "b")
    ctx.provide("late", object())


def kernel_objects() -> Counter[str]:
    gc.collect()
    return Counter(
        type(found).__name__
        for found in gc.get_objects()
        if str(type(found).__module__).startswith(
            "dsh_cordis"
        )  # some classes hold a descriptor there
    )


async def test_K54_two_thousand_mounts_of_a_tree_leave_nothing(ctx: Context) -> None:
    async def mount(times: int) -> None:
        with anyio.fail_after(120):
            for number in range(times):
                fiber = ctx.plugin(tree)
                await ctx.settled()
                ctx.emit(Beat(count=number))
                await fiber.dispose()
        await anyio.wait_all_tasks_blocked()

    await mount(20)
    before = kernel_objects()
    await mount(1880)
    tracemalloc.start()
    try:
        await mount(20)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0]
        await mount(80)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - kept
    finally:
        tracemalloc.stop()
    assert kernel_objects() == before
    assert grown < 16 * 1024


Action = tuple[str, int]
keys = st.sampled_from([None, "a", "b"])
actions = st.tuples(st.sampled_from(["dispose", "restart", "update", "yield"]), st.integers(0, 9))


class Order(RuleBasedStateMachine):
    """A model of what is mounted, against the kernel: what is undone, and in which order.

    What one activation registered must be undone newest first, each finished before the next.
    """

    backend = "asyncio"

    def __init__(self) -> None:
        super().__init__()
        self.portal = anyio.from_thread.start_blocking_portal(self.backend)
        self.run: Any = self.portal.__enter__()
        self.wrong: list[str] = []
        self.numbers = self.open = 0
        self.fibers: list[Fiber] = []
        self.root = Context()
        self.run.call(self.root.__aenter__)

    @override
    def teardown(self) -> None:
        self.run.call(self.root.__aexit__, None, None, None)
        self.portal.__exit__(None, None, None)
        assert (self.open, self.wrong) == (0, [])
        assert_unloaded(self.root)

    def _enter(self, standing: list[int]) -> Callable[[], None]:
        """Set up one effect of an activation, and check at its undoing that it is the newest."""
        self.numbers += 1
        number = self.numbers
        standing.append(number)
        self.open += 1

        def undo() -> None:
            if standing[-1] != number:
                self.wrong.append(f"{number} is undone before the newer {standing[-1]}")
            standing.remove(number)
            self.open -= 1

        return undo

    def _body(self, late: bool, key: str | None) -> Callable[[Context], object]:
        def set_up(ctx: Context, standing: list[int]) -> None:
            ctx.effect(lambda: self._enter(standing))
            if key is not None:
                with suppress(ServiceConflict):
                    ctx.provide(key, object())
            ctx.effect(lambda: self._enter_late(standing))
            ctx.effect(lambda: self._enter(standing))

        def sync_body(ctx: Context) -> None:
            set_up(ctx, [])

        async def late_body(ctx: Context) -> None:
            standing: list[int] = []
            ctx.effect(lambda: self._enter(standing))
            await anyio.lowlevel.checkpoint()
            set_up(ctx, standing)

        return late_body if late else sync_body

    def _enter_late(self, standing: list[int]) -> Callable[[], Awaitable[None]]:
        undo = self._enter(standing)

        async def late() -> None:
            await anyio.lowlevel.checkpoint()
            undo()

        return late

    def _do(self, work: Callable[[], object]) -> None:
        """Do something on the loop, and let it come to rest so that every run is the same."""

        async def done() -> None:
            with suppress(InactiveError):
                result = work()
                if isawaitable(result):
                    await result
            with anyio.fail_after(5):
                await self.root.settled()
                await anyio.wait_all_tasks_blocked()

        self.run.call(done)
        self.fibers = [fiber for fiber in self.fibers if fiber.state is not FiberState.DISPOSED]

    @rule(index=st.integers(-1, 9), late=st.booleans(), key=keys, need=keys)
    def mount(self, index: int, late: bool, key: str | None, need: str | None) -> None:
        below = index >= 0 and bool(self.fibers)
        body = self._body(late, key if key != need else None)

        def mount() -> None:
            ctx = self.fibers[index % len(self.fibers)].ctx if below else self.root
            self.fibers.append(ctx.inject([] if need is None else [need], body))

        self._do(mount)

    @precondition(lambda self: self.fibers)
    @rule(plan=st.lists(actions, min_size=1, max_size=12))
    def storm(self, plan: list[Action]) -> None:
        async def storm() -> None:
            for action, index in plan:
                fiber = self.fibers[index % len(self.fibers)]
                with suppress(InactiveError):
                    match action:
                        case "dispose":
                            fiber.dispose()
                        case "restart":
                            fiber.restart()
                        case "update":
                            fiber.update(object())
                        case _:
                            await anyio.lowlevel.checkpoint()

        self._do(storm)

    @invariant()
    def nothing_is_undone_out_of_order(self) -> None:
        assert self.wrong == []


class OrderOnTrio(Order):
    backend = "trio"


@pytest.mark.parametrize("machine", [Order, OrderOnTrio], ids=["asyncio", "trio"])
def test_K14_K38_K60_interleaved_mounts_and_reload_storms_unwind_in_order(
    machine: type[RuleBasedStateMachine],
) -> None:
    case: Any = machine.TestCase
    case.settings = settings(
        max_examples=25, stateful_step_count=25, deadline=None, derandomize=True
    )
    case("runTest").runTest()
