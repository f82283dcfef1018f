"""Views of a log from its projections (S157, S164, S165), and what work an operation takes (S166-S170).

Work is counted in calls of functions, which are the same in every run; times are not.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import anyio
import pytest

from dsh_agent import SelectionState, model_selection_unit
from dsh_cordis import Context
from dsh_llm import AdapterDefaults, AssistantStreamAccumulator, LlmCallConfig, TextDelta
from dsh_session import (
    ModelSelectionEvent,
    RawData,
    ReplaceOp,
    RequestContext,
    RequestHeader,
    RequestHeaderEvent,
    Session,
    SessionEventAppended,
    SessionEventData,
    SessionHeader,
    SessionId,
    SessionStore,
    TodoItem,
    TodoWrite,
    UserMessageEvent,
    build_fork_seed,
    interrupted_turn_closers,
)
from dsh_session.testing import append_turn, new_session, user_message
from dsh_session_projection import ProjectionDefinition, SessionProjectionRegistry

Unit = ProjectionDefinition[Any]  # units of several state types


def counting(key: str = "count") -> Unit:
    return ProjectionDefinition(
        key=key,
        state_version=1,
        init=lambda header, count: 0,
        apply=lambda state, event: state + 1,
        view=lambda state: {"events": state},
    )


async def registry(ctx: Context) -> SessionProjectionRegistry:
    await ctx.plugin(SessionStore)
    await ctx.plugin(SessionProjectionRegistry)
    return ctx.session_projections  # type: ignore[no-any-return]  # read by its key


async def test_S157_a_snapshot_is_one_position_of_the_log() -> None:
    with anyio.fail_after(5):
        async with Context() as ctx:
            projections = await registry(ctx)
            projections.register(counting())
            hidden: Unit = ProjectionDefinition(
                key="hidden",
                state_version=1,
                init=lambda header, count: [],
                apply=lambda state, event: [*state, event.seq],
            )
            projections.register(hidden)
            session = ctx.sessions.create()
            assert projections.cached_snapshot(session).values == {}
            empty = projections.snapshot(session)
            assert (empty.as_of_seq, empty.values) == (-1, {"count": {"events": 0}})
            session.append("x/y", 1)
            session.append("x/y", 2)
            found = projections.snapshot(session)
            assert (found.as_of_seq, found.values) == (1, {"count": {"events": 2}})
            assert projections.snapshot(session, ["nobody", "hidden"]).values == {}
            assert projections.state_of(session, "hidden") == [0, 1]
            assert projections.state_of(session, "nobody") is None
            assert projections.cached_snapshot(session, ["count"]) == found


def selection(*payloads: SessionEventData) -> tuple[SelectionState, object]:
    session, unit = new_session(), model_selection_unit
    state = unit.init(session.header, 0)
    for payload in payloads:
        state = unit.apply(state, session.append(payload))
    assert unit.view is not None
    return state, unit.view(state)


def header(model: str, effort: str | None = None, *, marked: bool = False) -> RequestHeaderEvent:
    return RequestHeaderEvent(
        header=RequestHeader(
            config=LlmCallConfig(provider="p", model=model, reasoning_effort=effort),
            adapter_defaults=AdapterDefaults(reasoning_effort=True) if marked else None,
        ),
        reason="initial",
    )


def choose(model: str, effort: str | None = None) -> ModelSelectionEvent:
    return ModelSelectionEvent(provider="p", model=model, reasoning_effort=effort)


A = {"provider": "p", "model": "a"}
B_LOW = {"provider": "p", "model": "b", "reasoningEffort": "low"}


@pytest.mark.parametrize(
    ("payloads", "view"),
    [
        pytest.param([], {"lastUsed": None, "next": None}, id="nothing"),
        pytest.param([choose("a")], {"lastUsed": None, "next": A}, id="chosen"),
        pytest.param([header("a")], {"lastUsed": A, "next": A}, id="used"),
        pytest.param([header("a"), choose("b", "low")], {"lastUsed": A, "next": B_LOW}, id="both"),
        pytest.param(
            [choose("b", "low"), header("b", "low")],
            {"lastUsed": B_LOW, "next": B_LOW},
            id="used-up",
        ),
        pytest.param(
            [choose("b", "low"), header("a")], {"lastUsed": A, "next": B_LOW}, id="not-yet"
        ),
        pytest.param(
            [header("a", "high", marked=True)], {"lastUsed": A, "next": A}, id="adapters-effort"
        ),
    ],
)
def test_S164_the_model_selection_of_a_log(
    payloads: list[SessionEventData], view: dict[str, object]
) -> None:
    state, found = selection(*payloads)
    assert found == view
    assert (model_selection_unit.key, model_selection_unit.state_version) == ("modelSelection", 2)
    assert model_selection_unit.state_from_json(model_selection_unit.state_to_json(state)) == state


def test_S164_the_same_choice_again_is_the_same_state() -> None:
    session, unit = new_session(), model_selection_unit
    first = unit.apply(unit.init(session.header, 0), session.append(choose("a")))
    assert unit.apply(first, session.append(choose("a"))) is first


async def test_S165_an_operation_in_the_log_is_served_as_a_whole_value() -> None:
    with anyio.fail_after(5):
        async with Context() as ctx:
            projections = await registry(ctx)
            todos: Unit = ProjectionDefinition(
                key="todos",
                state_version=1,
                init=lambda header, count: [],
                apply=lambda state, event: (
                    [item.content for item in event.data.todos]
                    if isinstance(event.data, TodoWrite)
                    else [*state, event.data.json]
                    if isinstance(event.data, RawData)
                    else state
                ),
                view=lambda state: state,
            )
            projections.register(todos)
            session = ctx.sessions.create()
            session.append(TodoWrite(todos=(TodoItem(content="a", status="pending"),)))
            session.append("todo/add", "b")
            assert projections.snapshot(session).values == {"todos": ["a", "b"]}


# ---- work --------------------------------------------------------------------------------------


@contextmanager
def counted_calls() -> Iterator[list[int]]:
    """Count the calls of Python and C functions."""
    calls = [0]

    def count(frame: FrameType, event: str, argument: object) -> None:
        calls[0] += event in {"call", "c_call"}

    before = sys.getprofile()
    gc.collect()
    gc.disable()  # what it finds belongs to other tests, and its callbacks would count here
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)
        gc.enable()


def work(do: Callable[[], object]) -> int:
    do()  # caches of decoders and of classes are filled once in a process
    with counted_calls() as calls:
        do()
    return calls[0]


def long_session(turns: int) -> Session:
    session = new_session()
    for turn in range(1, turns + 1):
        append_turn(session, turn)
    return session


SHORT, LONG = 3, 300


def user(session: Session) -> None:
    data = UserMessageEvent(message=user_message(id=f"x{session.seq}"))
    session.append(data, surface_op="append")


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(user, id="append"),
        pytest.param(lambda session: session.append("x/y", {"a": 1}), id="append-raw"),
        pytest.param(lambda session: session.events, id="events"),
        pytest.param(lambda session: (session.seq, session.header, session.surface), id="views"),
    ],
)
def test_S166_an_append_and_the_views_take_the_same_work_at_any_length(
    operation: Callable[[Session], object],
) -> None:
    short, long = long_session(SHORT), long_session(LONG)
    assert work(lambda: operation(short)) == work(lambda: operation(long))


def test_S166_a_push_takes_the_same_work_at_any_length() -> None:
    def pushed(count: int) -> Callable[[], object]:
        accumulator = AssistantStreamAccumulator()
        for time in range(count):
            accumulator.push(time, TextDelta(0, "a"))
        return lambda: accumulator.push(count, TextDelta(0, "a"))

    assert work(pushed(10)) == work(pushed(5000))


@pytest.mark.parametrize(
    "fold",
    [
        pytest.param(lambda session: session.request_header(), id="header"),
        pytest.param(lambda session: session.request_context(), id="context"),
        pytest.param(lambda session: session.tool_history(), id="tools"),
        pytest.param(lambda session: session.derive_messages(), id="messages"),
    ],
)
def test_S167_a_fold_takes_work_for_the_new_events_alone(
    fold: Callable[[Session], object],
) -> None:
    def step(session: Session) -> Callable[[], object]:
        session.append(header("m"))
        session.append(RequestContext(provider="p", model="m"))
        fold(session)

        def do() -> None:
            user(session)
            fold(session)

        return do

    assert work(step(long_session(SHORT))) == work(step(long_session(LONG)))


def test_S167_a_replacement_rebuilds_the_history_once() -> None:
    session = long_session(100)
    session.derive_messages()
    nodes = session.surface.nodes
    session.append(
        UserMessageEvent(message=user_message("sum", id="k")),
        surface_op=ReplaceOp(start_seq=nodes[1], end_seq=nodes[1]),
        source_event_seqs=(nodes[1],),
    )
    with counted_calls() as calls:
        session.derive_messages()
    assert calls[0] > len(nodes)
    with counted_calls() as calls:
        session.derive_messages()
    assert calls[0] < 20


async def test_S168_fan_out_takes_work_for_each_listener_and_unit() -> None:
    with anyio.fail_after(10):
        async with Context() as ctx:
            projections = await registry(ctx)
            projections.register(counting())

            def live(name: str, turns: int) -> Session:
                session: Session = ctx.sessions.create(SessionId(name))
                for turn in range(1, turns + 1):
                    append_turn(session, turn)
                return session

            short, long = live("short", SHORT), live("long", LONG)
            for session in (short, long):
                projections.snapshot(session)
            seen: list[int] = []
            base = work(lambda: user(short))
            assert base == work(lambda: user(long))
            for _ in range(4):
                ctx.on(SessionEventAppended, lambda event: seen.append(event.event.seq))
            with_four = work(lambda: user(long))
            assert with_four == work(lambda: user(short))
            assert len(seen) == 16
            assert base < with_four < base + 4 * 40


def test_S170_a_fork_and_its_seed_take_work_for_the_prefix() -> None:
    events = long_session(LONG).events
    full = Session.create(SessionId("full"), events)

    def child(length: int) -> Callable[[], object]:
        seed = build_fork_seed(full.events, length - 1)
        header = SessionHeader(id=SessionId("child"), created_at=0, is_seeded=True)
        return lambda: Session.create(header.id, seed, header, length)

    small, double = work(child(400)), work(child(800))
    assert double < 2.2 * small
    assert work(lambda: build_fork_seed(full.events, 399)) < 3 * work(
        lambda: build_fork_seed(full.events, 199)
    )


def test_S170_closers_take_work_for_the_log_once() -> None:
    short, long = long_session(100).events, long_session(200).events
    assert work(lambda: interrupted_turn_closers(long)) < 2.2 * work(
        lambda: interrupted_turn_closers(short)
    )
