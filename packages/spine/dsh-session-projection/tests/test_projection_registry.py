"""Projections follow logs, tell of changes, contain failures and survive restarts (S152-S165)."""

import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from weakref import ref

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_cordis import Context
from dsh_session import (
    Session,
    SessionEvent,
    SessionEventAppended,
    SessionHeader,
    SessionId,
    SessionStore,
)
from dsh_session.testing import new_session
from dsh_session_projection import (
    ProjectionConflict,
    ProjectionDefinition,
    ProjectionFailed,
    ProjectionRestoreError,
    SessionProjectionRegistry,
)
from dsh_session_projection.definition import same

Unit = ProjectionDefinition[Any]  # units of several state types


class Holder:
    """A state that can be watched going."""

    def __init__(self, name: str) -> None:
        self.name = name


@asynccontextmanager
async def registry_root() -> AsyncIterator[tuple[Context, SessionProjectionRegistry]]:
    with anyio.fail_after(5):
        async with Context() as ctx:
            await ctx.plugin(SessionStore)
            await ctx.plugin(SessionProjectionRegistry)
            yield ctx, ctx.session_projections


def add(session: Session, value: object) -> SessionEvent:
    return session.append("test/add", value)


def value_of(event: SessionEvent) -> Any:  # JSON
    return event.data.json if event.type == "test/add" else None  # type: ignore[union-attr]  # raw by its type


def collect(state: list[object], event: SessionEvent) -> list[object]:
    value = value_of(event)
    if value == "boom":
        raise ValueError("boom")
    return state if value is None else [*state, value]


def unit(key: str = "all", version: int = 1, **changes: Any) -> Unit:  # fields by name
    fields: dict[str, Any] = {"init": lambda header, count: [], "apply": collect}
    fields["view"] = lambda state: state
    return ProjectionDefinition(key=key, state_version=version, **{**fields, **changes})


async def test_S155_every_event_goes_once_through_every_unit() -> None:
    async with registry_root() as (ctx, projections):
        session = ctx.sessions.create()
        add(session, 1)
        projections.register(unit("a"))
        projections.register(unit("b"))
        add(session, 2)
        assert projections.cached_snapshot(session).values == {"a": [1, 2], "b": [1, 2]}
        assert projections.snapshot(session).as_of_seq == 1
        empty = projections.snapshot(ctx.sessions.create())
        assert (empty.as_of_seq, empty.values) == (-1, {"a": [], "b": []})
        assert projections.state_of(session, "a") == [1, 2]
        assert projections.state_of(session, "nobody") is None


async def test_S154_a_unit_goes_with_its_last_registration() -> None:
    async with registry_root() as (ctx, projections):
        session = ctx.sessions.create()
        add(session, 1)
        first, second = projections.register(unit()), projections.register(unit())
        with pytest.raises(ProjectionConflict, match="state_version 1, not 2"):
            projections.register(unit(version=2))
        for bad in (True, -1, "1"):
            with pytest.raises(ProjectionConflict, match="non-negative integer"):
                projections.register(unit("b", version=bad))  # type: ignore[arg-type]  # what is tested
        first()
        assert projections.snapshot(session).values == {"all": [1]}
        second()
        assert projections.snapshot(session).values == {}
        projections.register(unit(version=2))
        assert projections.snapshot(session).values == {"all": [1]}


async def test_S154_a_registration_belongs_to_the_caller() -> None:
    async with registry_root() as (ctx, projections):

        class Needs(Context):
            session_projections: SessionProjectionRegistry

        def body(inner: Needs) -> None:
            inner.session_projections.register(unit())
            inner.session_projections.on_changed(lambda *change: seen.append(change))

        seen: list[object] = []
        session = ctx.sessions.create()
        async with ctx.plugin(body):
            add(session, 1)
        add(session, 2)
        assert [change[1:] for change in seen] == [("all", [1], 0)]  # type: ignore[index]  # tuples
        assert projections.snapshot(session).values == {}


async def test_S156_changes_are_told_once_when_state_and_view_changed() -> None:
    async with registry_root() as (ctx, projections):
        seen: list[tuple[str, object, int]] = []
        session = ctx.sessions.create()
        add(session, 0)
        projections.register(unit("all"))
        projections.register(unit("count", view=len))
        projections.register(unit("constant", view=lambda state: "same"))
        projections.register(unit("host", view=None))
        projections.on_changed(lambda _, key, view, seq: seen.append((key, view, seq)))
        add(session, 1)
        session.append("x/y", 1)
        assert seen == [("all", [0, 1], 1), ("count", 2, 1)]
        projections.snapshot(session)
        assert len(seen) == 2


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (1, 1, True),
        (1, True, False),
        (1, 1.0, False),
        ("a" * 50, "".join(["a"] * 50), True),
        ([], [], False),
        (None, None, True),
        (10**9, int("1000000000"), True),
    ],
)
def test_S153_same_is_identity_or_type_and_value(
    left: object, right: object, expected: bool
) -> None:
    assert same(left, right) is expected


async def test_S155_what_was_folded_goes_with_its_session_and_no_other_gets_it() -> None:
    async with registry_root() as (_, projections):
        kept: list[ref[Holder]] = []

        def init(header: SessionHeader, count: int) -> Holder:
            holder = Holder(header.id)
            kept.append(ref(holder))
            return holder

        projections.register(unit(init=init, apply=lambda state, event: state, view=None))
        for name in map(str, range(50)):  # a new object takes the place, and the id, of an old one
            session = Session.create(SessionId(name))
            found = projections.state_of(session, "all")
            assert isinstance(found, Holder)
            assert found.name == name
            del session, found
        gc.collect()
        assert [one for one in kept if one() is not None] == []


async def test_S155_a_unit_that_names_its_events_gets_no_others() -> None:
    async with registry_root() as (ctx, projections):
        got: list[str] = []

        def apply(state: int, event: SessionEvent) -> int:
            got.append(event.type)
            return state + 1

        wanted = unit(
            init=lambda *_: 0, apply=apply, view=None, event_types=frozenset({"test/add"})
        )
        projections.register(wanted)
        session = ctx.sessions.create()
        for name in ("x/y", "test/add", "x/y"):
            session.append(name, 1)
        assert got == ["test/add"]
        assert projections.checkpoint(session) == {"all": {"ver": 1, "seq": 2, "val": 1}}
        session.append("test/add", 1)
        assert projections.state_of(session, "all") == 2
        late = Session.create(session.id, session.events)
        assert projections.state_of(late, "all") == 2
        assert got == ["test/add"] * 4


async def test_S156_a_view_that_nobody_reads_or_waits_for_is_not_made() -> None:
    async with registry_root() as (ctx, projections):
        made: list[object] = []
        told: list[object] = []

        def view(state: list[object]) -> list[object]:
            made.append(state)
            return state

        projections.register(unit(view=view))
        session = ctx.sessions.create()
        add(session, 1)
        add(session, 2)
        assert made == []
        assert projections.snapshot(session).values == {"all": [1, 2]}
        assert projections.cached_snapshot(session).values == {"all": [1, 2]}
        assert made == [[1, 2]]
        add(session, 3)
        projections.on_changed(lambda *change: told.append(change[2:]))
        add(session, 4)
        assert made == [[1, 2], [1, 2, 3], [1, 2, 3, 4]]
        assert told == [([1, 2, 3, 4], 3)]


async def test_S156_a_view_that_stayed_since_an_unread_change_is_not_told() -> None:
    async with registry_root() as (ctx, projections):
        told: list[object] = []
        projections.register(unit(view=lambda state: len(state) // 2))
        session = ctx.sessions.create()
        projections.snapshot(session)
        add(session, 1)
        add(session, 2)
        projections.on_changed(lambda *change: told.append(change[2:]))
        add(session, 3)
        add(session, 4)
        assert told == [(2, 3)]


async def test_S158_a_view_that_fails_is_made_again_at_the_next_read() -> None:
    async with registry_root() as (ctx, projections):
        told: list[object] = []
        projections.register(unit("typed", view_type=list[int]))
        session = ctx.sessions.create()
        add(session, "text")
        assert projections.state_of(session, "typed") == ["text"]
        assert list(projections.cached_snapshot(session).failed) == ["typed"]
        with pytest.raises(ProjectionFailed, match="typed"):
            projections.snapshot(session, ["typed"])
        projections.on_changed(lambda *change: told.append(change[2:]))
        add(session, 1)
        assert told == []
        with pytest.raises(ProjectionFailed, match="at seq 1"):
            projections.state_of(session, "typed")


async def test_S158_a_failing_unit_harms_only_readers_of_its_key() -> None:
    async with registry_root() as (ctx, projections):
        session = ctx.sessions.create()
        projections.register(unit("bad"))
        projections.register(unit("good", apply=lambda state, event: [*state, event.type]))
        add(session, 1)
        add(session, "boom")
        add(session, 2)
        whole = projections.snapshot(session)
        assert whole.values == {"good": ["test/add"] * 3}
        assert list(whole.failed) == ["bad"]
        with pytest.raises(ProjectionFailed, match="'bad' fails at seq 1: boom"):
            projections.snapshot(session, ["bad"])
        with pytest.raises(ProjectionFailed):
            projections.state_of(session, "bad")
        assert projections.checkpoint(session)["bad"] == {"ver": 1, "seq": 0, "val": [1]}
        assert projections.cached_snapshot(session).as_of_seq == 0


async def test_S158_a_unit_that_recovers_skipped_nothing() -> None:
    async with registry_root() as (ctx, projections):
        broken = [True]

        def flaky(state: list[object], event: SessionEvent) -> list[object]:
            if broken[0]:
                raise ValueError("not yet")
            return collect(state, event)

        session = ctx.sessions.create()
        projections.register(unit(apply=flaky))
        add(session, 1)
        add(session, 2)
        broken[0] = False
        assert projections.snapshot(session).values == {"all": [1, 2]}


async def test_S158_listeners_and_views_that_raise_are_contained() -> None:
    async with registry_root() as (ctx, projections):
        seen: list[object] = []

        def fails(*change: object) -> None:
            raise ValueError("listener")

        projections.on_changed(fails)
        projections.on_changed(lambda *change: seen.append(change[1]))
        projections.register(unit("typed", view_type=list[int]))
        projections.register(unit("all"))
        session = ctx.sessions.create()
        add(session, "text")
        assert seen == ["all"]
        with pytest.raises(ProjectionFailed, match="typed"):
            projections.snapshot(session, ["typed"])


async def test_S158_reads_inside_another_listener_see_the_whole_log() -> None:
    with anyio.fail_after(5):
        async with Context() as ctx:
            await ctx.plugin(SessionStore)
            seen: list[object] = []
            told: list[object] = []
            ctx.on(
                SessionEventAppended,
                lambda event: seen.append(ctx.session_projections.state_of(event.session, "all")),
            )
            await ctx.plugin(SessionProjectionRegistry)
            ctx.session_projections.register(unit())
            ctx.session_projections.on_changed(lambda *change: told.append(change[2:]))
            handle = ctx.sessions.prepare()
            detach = ctx.sessions.enter(handle)
            add(handle, 1)
            add(handle, 2)
            detach()
            add(handle, 3)
            assert seen == [[1], [1, 2]]
            assert ctx.session_projections.state_of(handle, "all") == [1, 2, 3]
            assert told == [([1], 0), ([1, 2], 1), ([1, 2, 3], 2)]


class Tally(msgspec.Struct, frozen=True):
    total: int = 0


def tally(version: int = 1) -> Unit:
    def apply(state: Tally, event: SessionEvent) -> Tally:
        value = value_of(event)
        return state if not isinstance(value, int) else Tally(state.total + value)

    return ProjectionDefinition(
        key="tally",
        state_version=version,
        init=lambda header, count: Tally(100 * count),
        apply=apply,
        view=lambda state: {"total": state.total},
        state_type=Tally,
    )


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(0, 12), st.integers(0, 12))
async def test_S159_S161_saved_rows_catch_up_from_any_place(
    values: list[int], saved_at: int, base: int
) -> None:
    async with registry_root() as (ctx, projections):
        projections.register(tally())
        projections.register(unit("host", view=None))
        session = ctx.sessions.create()
        for value in values[:saved_at]:
            add(session, value)
        rows = json.loads(json.dumps(projections.checkpoint(session)))
        assert projections.view_checkpoint(rows) == {"tally": {"total": sum(values[:saved_at])}}
        for value in values[saved_at:]:
            add(session, value)
        floor = projections.restore_floor(rows)
        assert floor == max(min(saved_at, len(values)) - 1, 0)
        base = min(base, floor)
        tail = session.events[base:]
        snapshot, fresh = projections.restore(rows, tail, base, session.header)
        assert snapshot.as_of_seq == session.seq - 1
        assert snapshot.values == {"tally": {"total": sum(values)}}
        assert fresh == projections.checkpoint(session)
        copy = Session.create(session.id, session.events)
        projections.hydrate(copy, rows, tail, base)
        assert projections.cached_snapshot(copy).values == snapshot.values


async def test_S160_unusable_rows_need_the_log_from_0() -> None:
    async with registry_root() as (ctx, projections):
        assert projections.restore_floor({}) is None
        projections.register(tally())
        session = ctx.sessions.create()
        for value in range(4):
            add(session, value)
        good = projections.checkpoint(session)
        header = SessionHeader(id=session.id, created_at=0)
        unusable: list[dict[str, Any]] = [  # rows, broken
            {},
            {"tally": {**good["tally"], "ver": 2}},
            {"tally": {**good["tally"], "val": {"total": "x"}}},
            {"tally": {**good["tally"], "seq": 99}},
            {"tally": {"ver": 1}},
            {"tally": 5},
        ]
        for rows in unusable:
            with pytest.raises(ProjectionRestoreError, match="from seq 0"):
                projections.restore(rows, session.events[2:], 2, header)
            snapshot, _ = projections.restore(rows, session.events, 0, header)
            assert snapshot.values == {"tally": {"total": 6}}
        assert projections.view_checkpoint(unusable[1]) == {}


async def test_S152_the_cut_comes_from_the_argument() -> None:
    async with registry_root() as (ctx, projections):
        projections.register(tally())
        parent = ctx.sessions.create()
        add(parent, 1)
        child = ctx.sessions.fork(parent)
        assert projections.snapshot(child).values == {"tally": {"total": 101}}
        assert projections.snapshot(new_session()).values == {"tally": {"total": 0}}
