import gc
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import anyio
import pytest
from typing_extensions import override

from dsh_cordis import (
    Context,
    Emit,
    InactiveError,
    ScopedTable,
    ScopeError,
    Target,
    bind_scope_parent,
    create_scope,
    scope_chain_of,
    scope_of,
)

pytest_plugins = ["dsh_cordis.testing"]


class Key:
    """Equal to every other key and unhashable: only identity may matter."""

    __hash__ = None  # type: ignore[assignment]  # an unhashable key must do

    def __init__(self, name: str = "") -> None:
        self.name = name

    @override
    def __eq__(self, other: object) -> bool:
        return True


class Changed(Emit, frozen=True):
    """A scoped event with its subject in the payload."""

    name: ClassVar[str] = "scope-test/changed"
    subject: ClassVar[str | None] = "key"
    key: object


class Global(Emit, frozen=True):
    """A scoped event whose target must be given."""

    name: ClassVar[str] = "scope-test/global"
    scoped: ClassVar[bool] = True


class DuplicateError(Exception):
    pass


def table(changes: list[str] | None = None) -> ScopedTable[str]:
    note = None if changes is None else (lambda: changes.append("changed"))
    return ScopedTable(lambda name: DuplicateError(name), note)


async def test_K91_K92_a_scope_is_usable_at_once_and_tags_what_is_below(ctx: Context) -> None:
    key, inner_key = Key("outer"), Key("inner")
    scope = create_scope(ctx, key)
    seen: list[object] = []
    scope.ctx.plugin(lambda child: seen.append(scope_of(child)))
    inner = create_scope(scope.ctx, inner_key)
    await ctx.settled()
    assert seen[0] is key
    assert scope_of(scope.ctx.extend()) is key
    assert scope_of(inner.ctx) is inner_key
    assert scope_of(ctx) is None
    await scope.dispose()
    with pytest.raises(InactiveError):
        inner.ctx.effect(lambda: None)


async def test_K91_on_an_inactive_context_no_parent_is_bound(ctx: Context) -> None:
    fiber = ctx.plugin(lambda _: None)
    await fiber
    await fiber.dispose()
    key, parent = Key(), Key()
    with pytest.raises(InactiveError):
        create_scope(fiber.ctx, key, parent)
    assert len(scope_chain_of(key)) == 1
    bind_scope_parent(key, parent)


async def test_K93_dispose_is_shared_and_the_raw_handle_may_be_yielded(ctx: Context) -> None:
    log: list[str] = []

    def composite() -> Iterator[object]:
        scope = create_scope(ctx, Key())
        scope.ctx.effect(lambda: lambda: log.append("scope"))
        yield lambda: log.append("older")
        yield scope.handle
        yield lambda: log.append("newer")

    handle = ctx.effect(composite)
    with anyio.fail_after(5):
        await handle()
    assert log == ["newer", "scope", "older"]
    gate = anyio.Event()
    scope = create_scope(ctx, Key())
    scope.ctx.effect(lambda: gate.wait)
    await ctx.settled()
    scope.handle()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scope.dispose)
            tasks.start_soon(scope.dispose)
            await anyio.wait_all_tasks_blocked()
            assert scope.handle.used is False
            gate.set()
    assert scope.handle.used


def test_K90_K94_a_key_gets_one_parent_which_only_its_binding_moves() -> None:
    a, b, c = Key("a"), Key("b"), Key("c")
    binding = bind_scope_parent(b, a)
    lower = bind_scope_parent(c, b)
    assert [key.name for key in scope_chain_of(c)] == ["c", "b", "a"]  # type: ignore[attr-defined]  # our keys
    assert scope_chain_of(None) == []
    with pytest.raises(ScopeError):
        bind_scope_parent(c, a)
    for parent in (c, b):
        with pytest.raises(ScopeError):
            binding.move(parent)
    lower.move(a)
    assert [key.name for key in scope_chain_of(c)] == ["c", "a"]  # type: ignore[attr-defined]  # our keys


def test_K90_the_relation_keeps_no_key_alive() -> None:
    class Plain:
        pass

    key, parent = Plain(), Plain()
    refs = [weakref.ref(key), weakref.ref(parent)]
    binding = bind_scope_parent(key, parent)
    del binding, key, parent
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


async def test_K95_K97_events_go_up_and_need_the_right_target(ctx: Context) -> None:
    log: list[str] = []
    top, low, beside = Key("top"), Key("low"), Key("beside")
    scopes = {
        "top": create_scope(ctx, top),
        "low": create_scope(ctx, low, top),
        "beside": create_scope(ctx, beside, top),
    }
    for name, scope in scopes.items():
        for event in (Changed, Global):
            scope.ctx.on(event, lambda _, name=name: log.append(name))
    for event in (Changed, Global):
        ctx.on(event, lambda _: log.append("untagged"))
        scopes["beside"].ctx.on(event, lambda _: log.append("everywhere"), everywhere=True)

    ctx.emit(Changed(key=low))
    assert log == ["top", "low", "untagged", "everywhere"]
    log.clear()
    ctx.emit(Global(), target=Target(None))
    assert log == ["untagged", "everywhere"]
    log.clear()
    with pytest.raises(ScopeError):
        ctx.emit(Global())
    with pytest.raises(ScopeError):
        ctx.emit(Changed(key=low), target=Target(top))
    with pytest.raises(ScopeError):
        ctx.emit(Global(), target=Target(admits=lambda _: True))
    assert log == []


async def test_K96_a_target_admits_only_what_key_and_predicate_admit(ctx: Context) -> None:
    log: list[str] = []
    key = Key()
    scope = create_scope(ctx, key)
    scope.ctx.on(Changed, lambda _: log.append("tagged"))
    ctx.on(Changed, lambda _: log.append("untagged"))
    ctx.emit(Changed(key=key), target=Target(key, lambda owner: scope_of(owner) is key))
    assert log == ["tagged"]


async def test_K98_K99_views_merge_down_and_peek_reads_one_layer(ctx: Context) -> None:
    top, low = Key("top"), Key("low")
    upper, lower = create_scope(ctx, top), create_scope(ctx, low, top)
    names = table()
    for where, name, value in (
        (ctx, "a", "global"),
        (ctx, "b", "global"),
        (upper.ctx, "c", "top"),
        (upper.ctx, "a", "top"),
        (lower.ctx, "c", "low"),
        (lower.ctx, "d", "low"),
    ):
        names.set(where, name, value)
    for where, value in ((lower.ctx, "low"), (ctx, "global"), (upper.ctx, "top")):
        names.add(where, value)
    assert list(names.view(low).items()) == [
        ("a", "top"),
        ("b", "global"),
        ("c", "low"),
        ("d", "low"),
    ]
    assert list(names.view(None)) == ["a", "b"]
    assert names.entries(low) == ["global", "top", "low"]
    peeked = names.peek(low)
    assert peeked is not None
    assert list(peeked.named) == ["c", "d"]
    assert names.peek(Key()) is None
    assert [layer.scope for layer in names.chain_layers(low)] == [None, top, low]
    assert lower.binding is not None
    lower.binding.move(None)
    assert names.view(low)["a"] == "global"
    await lower.dispose()
    assert names.peek(low) is None


async def test_K100_K101_registration_and_undo_are_exact(ctx: Context) -> None:
    changes: list[str] = []
    names = table(changes)
    first = names.set(ctx, "a", "one")
    with pytest.raises(DuplicateError):
        names.set(ctx, "a", "two")
    assert changes == ["changed"]
    first()
    names.set(ctx, "a", "three")
    first()
    assert (names.view(None), changes) == ({"a": "three"}, ["changed"] * 3)
    handles = [names.add(ctx, "same"), names.add(ctx, "same")]
    handles[0]()
    assert names.entries(None) == ["same"]


async def test_K100_a_raising_notification_takes_the_registration_back(ctx: Context) -> None:
    calls: list[dict[str, str]] = []

    def notify() -> None:
        calls.append(names.view(None))
        if len(calls) == 1:
            raise RuntimeError("listener")

    names: ScopedTable[str] = ScopedTable(lambda name: DuplicateError(name), notify)
    with pytest.raises(RuntimeError, match="listener"):
        names.set(ctx, "a", "one")
    assert calls == [{"a": "one"}, {}]
    assert names.peek(None) is None
    assert ctx.fiber.effects() == []


async def test_K102_a_view_is_a_snapshot(ctx: Context) -> None:
    names = table()
    names.set(ctx, "a", "one")
    seen = []
    for name in names.view(None):
        names.set(ctx, name + "b", "two")
        seen.append(name)
    assert seen == ["a"]


async def test_K103_a_scope_resolves_services_as_the_plugin_that_made_it(ctx: Context) -> None:
    seen: list[Any] = []

    def maker(ctx: Context) -> None:
        scope = create_scope(ctx, Key())
        scope.ctx.plugin(lambda child: seen.append(child.thing))
        seen.append(scope.ctx.thing)

    maker.inject = ["thing"]  # type: ignore[attr-defined]  # how a function declares its needs
    ctx.provide("thing", 1)
    ctx.plugin(maker)
    await ctx.settled()
    assert seen == [1, 1]


async def test_K95_has_listeners_asks_for_one_subject(ctx: Context) -> None:
    top, low, beside = Key("top"), Key("low"), Key("beside")
    upper, scope = create_scope(ctx, top), create_scope(ctx, low, top)
    handle = upper.ctx.on(Changed, lambda _: None)
    assert ctx.has_listeners(Changed)
    assert ctx.has_listeners(Changed, top)
    assert ctx.has_listeners(Changed, low)
    assert not ctx.has_listeners(Changed, beside)
    handle()
    assert not ctx.has_listeners(Changed, low)
    scope.ctx.on(Changed, lambda _: None, everywhere=True)
    assert ctx.has_listeners(Changed, beside)


async def test_K95_a_tagged_listener_narrows_what_an_earlier_dispatch_reached(
    ctx: Context,
) -> None:
    log: list[str] = []
    here, there = Key("here"), Key("there")
    ctx.on(Changed, lambda event: log.append("untagged"))
    ctx.emit(Changed(key=here))
    handle = create_scope(ctx, here).ctx.on(Changed, lambda event: log.append("here"))
    ctx.emit(Changed(key=there))
    ctx.emit(Changed(key=here))
    handle()
    ctx.emit(Changed(key=here))
    assert log == ["untagged", "untagged", "untagged", "here", "untagged"]
