from collections.abc import Callable
from typing import Any, ClassVar

import anyio
import anyio.lowlevel
import pytest
from typing_extensions import override

from dsh_cordis import (
    Context,
    Fiber,
    FiberState,
    InactiveError,
    InternalError,
    Service,
    ServiceConflict,
    ServiceUnavailable,
)
from dsh_cordis.testing import ErrorRecorder

pytest_plugins = ["dsh_cordis.testing"]


class Counter(Service):
    key: ClassVar[str] = "counter"

    def __init__(self, ctx: Context, config: object = None) -> None:
        super().__init__(ctx)
        self.count = 0

    def register(self, undo: Callable[[], object]) -> None:
        self.count += 1
        self.ctx.effect(lambda: undo)


class NeedsCounter(Context):
    counter: Counter


def requiring(*keys: str) -> Callable[[Callable[[Context], object]], Any]:
    def declare(body: Any) -> Any:
        body.inject = list(keys)
        return body

    return declare


async def test_K1_derived_contexts_share_the_fiber_and_never_change_their_parent(
    ctx: Context,
) -> None:
    derived = ctx.extend().isolate("thing").intercept("thing", {"a": 1})
    assert derived.fiber is ctx.fiber
    derived.provide("thing", 1)
    assert ctx.get("thing") is None
    assert derived.get("thing") == 1


async def test_K2_K3_a_second_claim_is_refused_and_not_queued(ctx: Context) -> None:
    def claims(ctx: Context, value: int) -> None:
        ctx.provide("thing", value)

    first = ctx.plugin(claims, 1)
    await first
    second = ctx.plugin(claims, 2)
    with pytest.raises(ServiceConflict, match=r"'thing'.*'claims'"):
        await second
    await first.dispose()
    assert second.state is FiberState.FAILED
    assert ctx.get("thing") is None
    await second.restart()
    assert ctx.get("thing") == 2


async def test_K4_K5_claims_become_visible_together_when_the_provider_is_active(
    ctx: Context,
) -> None:
    release = anyio.Event()
    starts: list[str] = []
    inner: list[int] = []

    async def provider(ctx: Context) -> None:
        ctx.provide("first", 1)
        await ctx.plugin(requiring("first")(lambda child: inner.append(child.first)))
        await release.wait()
        ctx.provide("second", 2)

    consumer = ctx.plugin(requiring("first", "second")(lambda _: starts.append("consumer")))
    ctx.plugin(provider)
    await anyio.wait_all_tasks_blocked()
    assert (inner, consumer.state, ctx.get("first")) == ([1], FiberState.PENDING, None)
    release.set()
    with anyio.fail_after(5):
        await consumer.active()
    assert starts == ["consumer"]


@pytest.mark.parametrize("key", ["_private", "not an identifier", "emit", "fiber", "root"])
def test_K6_a_key_must_be_readable_as_an_attribute(key: str) -> None:
    ctx = Context()
    with pytest.raises(ValueError, match="cannot be a service key"):
        ctx.provide(key, 1)
    assert not hasattr(ctx, "_nothing")


async def test_K8_K14_dependents_unwind_first_and_read_their_service_until_then(
    ctx: Context,
) -> None:
    log: list[str] = []

    def link(name: str, needs: str | None) -> Any:
        async def undo(ctx: Context) -> None:
            await anyio.lowlevel.checkpoint()
            below = None if needs is None else getattr(ctx, needs)
            log.append(f"{name} {below} {getattr(ctx, name)}")

        def body(ctx: Context) -> object:
            ctx.provide(name, f"<{name}>")
            return lambda: undo(ctx)

        return body if needs is None else requiring(needs)(body)

    a = ctx.plugin(link("a", None))
    ctx.plugin(link("b", "a"))
    c = ctx.plugin(link("c", "b"))
    with anyio.fail_after(5):
        await ctx.settled()
        await a.dispose()
    assert log == ["c <b> <c>", "b <a> <b>", "a None <a>"]
    assert c.state is FiberState.PENDING


async def test_K13_K16_a_new_claim_restarts_dependents_even_with_an_equal_value(
    ctx: Context,
) -> None:
    seen: list[object] = []
    consumer = ctx.plugin(requiring("thing")(lambda child: seen.append(child.thing)))
    for _ in range(3):
        with anyio.fail_after(5):
            handle = ctx.provide("thing", "same")
            await consumer.active()
            await handle()
            await consumer
        assert consumer.state is FiberState.PENDING
    assert seen == ["same"] * 3


async def test_K15_withdrawing_by_handle_waits_for_the_old_activations_only(ctx: Context) -> None:
    gate = anyio.Event()
    seen: list[object] = []

    @requiring("thing")
    def consumer(ctx: Context) -> object:
        seen.append(ctx.thing)
        return gate.wait

    fiber = ctx.plugin(consumer)
    first = ctx.provide("thing", 1)
    await fiber.active()
    withdrawal = first()
    ctx.provide("thing", 2)
    await anyio.wait_all_tasks_blocked()
    assert (first.used, fiber.state) == (False, FiberState.UNLOADING)
    gate.set()
    with anyio.fail_after(5):
        await withdrawal
        await fiber.active()
    assert seen == [1, 2]


async def test_K16_a_failed_fiber_is_retried_only_when_its_claims_differ(ctx: Context) -> None:
    tries: list[object] = []

    @requiring("thing")
    def fails(ctx: Context) -> None:
        tries.append(ctx.thing)
        if ctx.thing == 1:
            raise RuntimeError("one")

    fiber = ctx.plugin(fails)
    first = ctx.provide("thing", 1)
    await anyio.wait_all_tasks_blocked()
    ctx.notify("thing")
    await anyio.wait_all_tasks_blocked()
    assert (tries, fiber.state) == ([1], FiberState.FAILED)
    await first()
    ctx.provide("thing", 2)
    with anyio.fail_after(5):
        await fiber
    assert (tries, fiber.state) == ([1, 2], FiberState.ACTIVE)


async def test_K9_K10_reads_go_up_to_what_ancestors_hold_and_fail_in_two_ways(
    ctx: Context,
) -> None:
    errors: list[ServiceUnavailable] = []
    seen: list[object] = []
    handle = ctx.provide("thing", 1)

    def grandchild(ctx: Context) -> None:
        seen.append(ctx.thing)
        seen.append(ctx.mine)
        try:
            seen.append(ctx.other)
        except ServiceUnavailable as error:
            errors.append(error)

    def parent(ctx: Context) -> None:
        ctx.provide("mine", 2)
        ctx.plugin(lambda child: child.plugin(grandchild))

    await ctx.plugin(lambda other: other.provide("other", 3) and None)
    ctx.plugin(requiring("thing")(parent))
    await ctx.settled()
    assert seen == [1, 2]
    assert (errors[0].declared, errors[0].key) == (False, "other")
    assert ctx.other == 3  # reads of the root are live
    pending = ctx.plugin(requiring("nothing")(grandchild))
    with pytest.raises(ServiceUnavailable, match="declared by"):
        _ = pending.ctx.nothing
    with anyio.fail_after(5):
        await handle()
    with pytest.raises(AttributeError):
        _ = ctx.thing


async def test_K11_get_sees_only_active_providers(ctx: Context) -> None:
    seen: list[object] = []

    def provider(ctx: Context) -> None:
        ctx.provide("thing", 1)
        seen.append(ctx.get("thing"))

    fiber = ctx.plugin(provider)
    seen.append(ctx.get("thing"))
    await fiber
    seen.append(ctx.get("thing"))
    assert seen == [None, None, 1]


async def test_K12_inject_follows_a_service_while_the_parent_stays(ctx: Context) -> None:
    log: list[str] = []

    def parent(ctx: Context) -> None:
        log.append("parent")

        def child(ctx: Context) -> object:
            log.append("up")
            return lambda: log.append("down")

        ctx.inject(["thing"], child)

    await ctx.plugin(parent)
    for _ in range(2):
        handle = ctx.provide("thing", 1)
        await ctx.settled()
        await handle()
    assert log == ["parent", "up", "down", "up", "down"]


async def test_K17_isolated_realms_neither_see_nor_conflict(ctx: Context) -> None:
    ctx.provide("thing", "outer")
    ctx.provide("plain", "shared")
    inner, same = ctx.isolate("thing", "room"), ctx.isolate("thing", "room")
    inner.provide("thing", "inner")
    seen: list[object] = []
    same.plugin(requiring("thing")(lambda child: seen.append((child.thing, child.plain))))
    lonely = ctx.isolate("thing").plugin(requiring("thing")(lambda _: seen.append("never")))

    def undeclared(ctx: Context) -> None:
        with pytest.raises(ServiceUnavailable):
            _ = ctx.thing

    ctx.isolate("thing").plugin(undeclared)
    await ctx.settled()
    assert seen == [("inner", "shared")]
    assert lonely.state is FiberState.PENDING
    assert ctx.thing == "outer"


async def test_K18_availability_is_asked_again_on_notify_and_raising_is_absence(
    ctx: Context,
) -> None:
    allowed = False

    def predicate(_: Context) -> bool:
        if not allowed:
            raise RuntimeError("predicate")
        return True

    recorder = ErrorRecorder(ctx)
    ctx.provide("thing", 1, available=predicate)
    fiber = ctx.plugin(requiring("thing")(lambda _: None))
    assert fiber.state is FiberState.PENDING
    assert [str(error) for error in recorder.errors][:1] == ["predicate"]
    allowed = True
    await fiber
    assert fiber.state is FiberState.PENDING
    ctx.notify("thing")
    with anyio.fail_after(5):
        await fiber.active()
        allowed = False
        ctx.notify("thing")
        await fiber
    assert fiber.state is FiberState.PENDING


async def test_K19_intercepted_config_reaches_the_service_merged(ctx: Context) -> None:
    seen: list[object] = []

    class Reader(Service):
        key = "reader"

        def read(self) -> dict[str, object]:
            return self.intercepted()

    def consumer(ctx: Context) -> None:
        seen.append(ctx.reader.read())

    consumer.inject = {"reader": {"b": 3}}  # type: ignore[attr-defined]  # needs with a config
    ctx.plugin(Reader)
    ctx.intercept("reader", {"a": 1, "b": 1}).intercept("reader", {"b": 2}).plugin(consumer)
    await ctx.settled()
    assert seen == [{"a": 1, "b": 3}]


async def test_K20_K21_effects_through_a_service_belong_to_its_reader(ctx: Context) -> None:
    log: list[str] = []

    class Inner(Service):
        key = "inner"

        def register(self, undo: Callable[[], object]) -> None:
            self.ctx.effect(lambda: undo)

    class OuterNeeds(Context):
        inner: Inner

    class Outer(Service):
        key = "outer"

        def __init__(self, ctx: OuterNeeds) -> None:
            super().__init__(ctx)

        def register(self, undo: Callable[[], object]) -> None:
            self.ctx.inner.register(undo)

    @requiring("outer")
    def consumer(ctx: Context) -> None:
        ctx.outer.register(lambda: log.append("undone"))
        with pytest.raises(ServiceUnavailable):
            _ = ctx.inner

    ctx.plugin(Outer)
    ctx.plugin(Inner)
    fiber = ctx.plugin(consumer)
    await ctx.settled()
    assert len(fiber.effects()) == 1

    def stranger(other: Context) -> None:
        fiber.ctx.outer.register(lambda: log.append("the fiber's"))

    other = ctx.plugin(stranger)
    await other
    await other.dispose()
    assert log == []
    view = fiber.ctx.outer
    await fiber.dispose()
    assert log == ["the fiber's", "undone"]
    with pytest.raises(InactiveError):
        view.register(lambda: None)


async def test_K22_views_share_state_are_equal_and_instances_of_the_class(ctx: Context) -> None:
    views: list[Counter] = []

    def consumer(ctx: NeedsCounter) -> None:
        views.append(ctx.counter)
        ctx.counter.count += 1

    ctx.plugin(Counter)
    ctx.plugin(consumer)
    ctx.plugin(consumer)
    await ctx.settled()
    first, second = views
    assert first is not second
    assert first == second
    assert hash(first) == hash(second)
    assert isinstance(first, Counter)
    assert (first.count, ctx.counter.count) == (2, 2)
    with pytest.raises(TypeError, match="__dict__"):

        class Slotted(Service):
            __slots__ = ("state",)

    with pytest.raises(TypeError):

        class Listing(Service, list[int]):  # type: ignore[misc]  # what the class statement refuses
            pass


async def test_K24_needs_are_annotations_of_the_context_class(ctx: Context) -> None:
    seen: list[object] = []

    class Base(Context):
        first: int

    class Needs(Base):
        second: "NeverDefined"  # type: ignore[name-defined]  # noqa: F821  # read by name only
        free: "int | None" = None

    def body(ctx: Needs) -> None:
        seen.append((ctx.first, ctx.second, ctx.free))

    def stringly(ctx: "Needs") -> None:
        seen.append("stringly")

    def unknown(ctx: "Nowhere") -> None:  # type: ignore[name-defined]  # noqa: F821  # what is refused
        ...

    fiber = ctx.plugin(body)
    other = ctx.plugin(stringly)
    assert (fiber.missing(), other.missing()) == (["first", "second"], ["first", "second"])
    ctx.provide("first", 1)
    ctx.provide("second", 2)
    await ctx.settled()
    assert seen == [(1, 2, None), "stringly"]
    ctx.provide("free", 3)
    await fiber.restart()
    assert seen[2:] == [(1, 2, 3)]
    with pytest.raises(TypeError, match="'Nowhere'"):
        ctx.plugin(unknown)


async def test_K4_a_service_with_a_long_init_keeps_consumers_waiting(ctx: Context) -> None:
    release = anyio.Event()

    class Slow(Service):
        key = "slow"

        @override
        async def init(self) -> None:
            await release.wait()

    ctx.plugin(Slow)
    consumer = ctx.plugin(requiring("slow")(lambda _: None))
    await anyio.wait_all_tasks_blocked()
    assert consumer.state is FiberState.PENDING
    release.set()
    with anyio.fail_after(5):
        await consumer.active()


async def test_K7_mutual_requirements_are_a_state_and_not_an_error(ctx: Context) -> None:
    @requiring("b")
    def first(ctx: Context) -> None:
        ctx.provide("a", 1)

    @requiring("a")
    def second(ctx: Context) -> None:
        ctx.provide("b", 1)

    fibers: list[Fiber] = [ctx.plugin(first), ctx.plugin(second)]
    await ctx.settled()
    assert [fiber.state for fiber in fibers] == [FiberState.PENDING] * 2
    assert [fiber.missing() for fiber in fibers] == [["b"], ["a"]]


async def test_K7_a_child_that_provides_what_its_parent_needs_waits_with_it(ctx: Context) -> None:
    parent = ctx.plugin(requiring("thing")(lambda _: None))
    child = parent.ctx.plugin(lambda child: child.provide("thing", 1) and None)
    await ctx.settled()
    assert (parent.state, child.state) == (FiberState.PENDING, FiberState.PENDING)


async def test_an_error_event_names_the_fiber_and_what_it_did(ctx: Context) -> None:
    seen: list[tuple[str, str]] = []
    ctx.on(InternalError, lambda event: seen.append((event.fiber.name, event.label)))

    def fails(ctx: Context) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        await ctx.plugin(fails)
    assert seen == [("fails", "plugin body")]


async def test_K114_a_moved_fiber_restarts_only_where_a_claim_of_it_changes(ctx: Context) -> None:
    log: list[str] = []

    def group(ctx: Context) -> None:
        return None

    def bystander(ctx: Context) -> object:
        log.append("bystander")
        return lambda: log.append("bystander undone")

    def reader(ctx: Context) -> object:
        log.append(f"reader {ctx.thing}")
        return lambda: log.append("reader undone")

    reader.inject = ["thing"]  # type: ignore[attr-defined]  # how a function declares its needs
    ctx.provide("thing", "outer")
    inner = ctx.isolate("thing", "room")
    inner.provide("thing", "inner")
    old, new = ctx.plugin(group), ctx.plugin(group)
    await ctx.settled()
    quiet = old.ctx.extend().plugin(bystander)
    moved = old.ctx.extend().plugin(reader)
    await ctx.settled()
    for fiber in (quiet, moved):
        fiber.move(new.ctx)
    await ctx.settled()
    assert log == ["bystander", "reader outer"]
    for fiber in (quiet, moved):
        fiber.move(new.ctx.isolate("thing", "room"))
    await ctx.settled()
    assert log == ["bystander", "reader outer", "reader undone", "reader inner"]
    await old.dispose()
    assert moved.state is FiberState.ACTIVE
    await new.dispose()
    assert log[4:] == ["reader undone", "bystander undone"]
    with pytest.raises(InactiveError):
        moved.move(ctx)


async def test_K114_what_has_a_realm_of_its_own_keeps_running_when_it_moves_along(
    ctx: Context,
) -> None:
    log: list[str] = []

    def reader(ctx: Context) -> object:
        log.append(f"reader {ctx.thing}")
        return lambda: log.append("reader undone")

    reader.inject = ["thing"]  # type: ignore[attr-defined]  # how a function declares its needs

    def holder(ctx: Context) -> None:
        apart = ctx.isolate("thing", "apart")
        apart.provide("thing", "apart")
        apart.plugin(reader)

    ctx.provide("thing", "outer")
    inner = ctx.isolate("thing", "room")
    inner.provide("thing", "inner")
    moved = ctx.extend().plugin(holder)
    await ctx.settled()
    moved.move(inner)
    await ctx.settled()
    assert log == ["reader apart"]
    await moved.dispose()
    assert log == ["reader apart", "reader undone"]


async def test_K23_a_view_kept_after_its_caller_is_gone_registers_nothing(ctx: Context) -> None:
    kept: list[Counter] = []
    undone: list[str] = []

    def caller(ctx: NeedsCounter) -> None:
        kept.append(ctx.counter)

    service = ctx.plugin(Counter)
    fiber = ctx.plugin(caller)
    await ctx.settled()
    await fiber.dispose()
    with pytest.raises(InactiveError):
        kept[0].register(lambda: undone.append("caller"))
    # What a service starts for itself stands on its own context, whoever calls.
    own: Counter = ctx.counter
    own.register(lambda: undone.append("root"))
    await service.dispose()
    assert undone == []


async def test_K140_nothing_of_what_is_left_out_comes_in_by_a_side_door(ctx: Context) -> None:
    with pytest.raises(ValueError, match="cannot be a service key"):
        ctx.provide("counter.inner", 1)
    ctx.provide("thing", 1)
    with pytest.raises(ServiceConflict):
        ctx.provide("thing", 2)
    for change in (ctx.fiber.restart, lambda: ctx.fiber.update(None)):
        with pytest.raises(TypeError, match="open another"):
            change()
    assert ctx.thing == 1
