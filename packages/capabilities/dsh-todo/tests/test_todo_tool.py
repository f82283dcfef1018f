"""`todo_write` through the pipeline, and the state it leaves."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import dsh_todo
from dsh_agent import Agent
from dsh_brand import JsonValue
from dsh_cordis import ConfigError
from dsh_session import (
    Completed,
    SessionConfig,
    SessionStore,
    TodoItem,
    TodoWrite,
    TurnEnd,
    TurnStart,
    event_from_json,
)
from dsh_session_projection import SessionProjectionRegistry
from dsh_todo import texts
from dsh_tools import ToolSuccess
from dsh_tools.testing import ToolBench, code_of, text_of, tool_bench


@asynccontextmanager
async def bench_with(*, parallel: bool = False) -> AsyncIterator[tuple[ToolBench, Agent]]:
    async with tool_bench() as bench:
        await bench.ctx.plugin(SessionStore, SessionConfig())
        await bench.ctx.plugin(SessionProjectionRegistry)
        await bench.ctx.plugin(dsh_todo, {"allow_parallel_in_progress": parallel})
        await bench.ctx.settled()
        yield bench, bench.agent()


def entry(content: str, status: str = "pending") -> dict[str, JsonValue]:
    return {"content": content, "status": status}


def written(agent: Agent) -> list[TodoWrite]:
    return [e.data for e in agent.session.events if isinstance(e.data, TodoWrite)]


async def test_C63_C64_a_list_is_trimmed_logged_and_counted() -> None:
    async with bench_with() as (bench, agent):
        given = [entry(" sow\n", "completed"), entry("water", "in_progress"), entry("reap")]
        result = await bench.run_as(agent, "todo_write", todos=given)
        todos = [entry("sow", "completed"), entry("water", "in_progress"), entry("reap")]
        assert isinstance(result, ToolSuccess)
        counts = {"pending": 1, "inProgress": 1, "completed": 1}
        assert result.value == {"todos": todos, "counts": counts}
        assert text_of(result) == ("Updated todo list: 1 pending, 1 in progress, 1 completed.")
        items = (
            TodoItem(content="sow", status="completed"),
            TodoItem(content="water", status="in_progress"),
            TodoItem(content="reap", status="pending"),
        )
        assert written(agent) == [TodoWrite(todos=items)]


async def test_C64_an_empty_list_clears_it() -> None:
    async with bench_with() as (bench, agent):
        result = await bench.run_as(agent, "todo_write", todos=[])
        assert text_of(result) == "Updated todo list: it is empty now."
        assert written(agent) == [TodoWrite(todos=())]


@pytest.mark.parametrize(
    ("todos", "problem"),
    [
        pytest.param([entry(" \t")], "todos[0].content is empty", id="empty"),
        pytest.param(
            [entry("a"), entry(" a ")], "todos[1].content repeats todos[0].content 'a'", id="twice"
        ),
        pytest.param(
            [entry("a", "in_progress"), entry("b", "in_progress")],
            "2 entries are in_progress, but only one may be; finish or postpone others",
            id="parallel",
        ),
    ],
)
async def test_C63_C64_a_refused_list_appends_nothing(
    todos: list[dict[str, JsonValue]], problem: str
) -> None:
    async with bench_with() as (bench, agent):
        result = await bench.run_as(agent, "todo_write", todos=todos)
        assert code_of(result) == "TODO_INVALID"
        assert text_of(result) == f"Error: the todo list was not changed: {problem}"
        assert written(agent) == []


async def test_C63_all_problems_are_told_at_once() -> None:
    async with bench_with() as (bench, agent):
        todos = [entry(""), entry("a", "in_progress"), entry("a", "in_progress")]
        text = text_of(await bench.run_as(agent, "todo_write", todos=todos))
        assert "is empty" in text
        assert "repeats" in text
        assert "in_progress" in text


async def test_C63_several_in_progress_if_allowed() -> None:
    async with bench_with(parallel=True) as (bench, agent):
        todos = [entry("a", "in_progress"), entry("b", "in_progress")]
        result = await bench.run_as(agent, "todo_write", todos=todos)
        assert text_of(result).startswith("Updated todo list: 0 pending, 2 in progress")


async def test_C63_it_needs_a_calling_agent() -> None:
    async with bench_with() as (bench, _):
        result = await bench.run("todo_write", todos=[entry("a")])
        assert code_of(result) == "TODO_NO_AGENT"


@pytest.mark.parametrize(
    "todos",
    [
        pytest.param([{"content": "a", "status": "pending", "more": 1}], id="more"),
        pytest.param([{"content": "a", "status": "done"}], id="status"),
        pytest.param([{"content": "a"}], id="missing"),
    ],
)
async def test_C63_items_are_closed(todos: JsonValue) -> None:
    async with bench_with() as (bench, agent):
        result = await bench.run_as(agent, "todo_write", todos=todos)
        assert code_of(result) == "INVALID_ARGS"
        assert written(agent) == []


@pytest.mark.parametrize("parallel", [False, True])
async def test_C119_the_schema_and_the_texts_are_held(parallel: bool) -> None:
    async with bench_with(parallel=parallel) as (bench, _):
        [schema] = bench.tools.schemas()
        assert schema.name == "todo_write"
        assert schema.description == (texts.PARALLEL if parallel else texts.SERIAL)
        assert schema.parameters == {
            "type": "object",
            "properties": {
                "todos": {
                    "type": "array",
                    "description": "The complete list, in the order of the work.",
                    "items": {
                        "type": "object",
                        "properties": {
                            "content": {
                                "type": "string",
                                "description": (
                                    "What is to be done, as a short instruction; unique in the "
                                    "list."
                                ),
                            },
                            "status": {
                                "type": "string",
                                "description": "How far it is.",
                                "enum": ["pending", "in_progress", "completed"],
                            },
                        },
                        "required": ["content", "status"],
                        "additionalProperties": False,
                    },
                }
            },
            "required": ["todos"],
        }


def test_C119_the_descriptions_are_held() -> None:
    base = (
        "Keep a todo list for the task at hand. Each call replaces the whole list, so always send "
        "every entry. Use it for work of several steps: list the steps first, mark a step "
        "in_progress when you begin it and completed as soon as it is done. "
    )
    assert base + "At most one entry may be in_progress at a time." == texts.SERIAL
    assert (
        base + "Several entries may be in_progress if they really run at the same time."
    ) == texts.PARALLEL


async def test_C64_the_state_is_the_list_of_the_turn() -> None:
    async with bench_with() as (bench, agent):
        states = bench.ctx.session_projections

        def todos() -> object:
            return states.snapshot(agent.session, ["todos"]).values["todos"]

        assert todos() is None
        agent.session.append(TurnStart(turn=1))
        await bench.run_as(agent, "todo_write", todos=[entry("a")])
        assert todos() == [entry("a")]
        agent.session.append(TurnEnd(turn=1, reason=Completed()))
        assert todos() == [entry("a")]
        agent.session.append(TurnStart(turn=2))
        assert todos() is None


async def test_C112_fields_of_other_writers_stay_out_of_the_state() -> None:
    async with bench_with() as (bench, agent):
        item = {"content": "a", "status": "blocked", "activeForm": "doing a"}
        event = event_from_json(
            {"type": "todo/write", "seq": 0, "time": 0, "data": {"todos": [item], "by": "x"}}
        )
        assert isinstance(event.data, TodoWrite)
        agent.session.append(event.data)
        values = bench.ctx.session_projections.snapshot(agent.session).values
        assert values["todos"] == [entry("a", "blocked")]


async def test_C109_the_setting_is_required_and_checked() -> None:
    async with tool_bench() as bench:
        for config in ({}, {"allow_parallel_in_progress": 1}, {"parallel": True}):
            with pytest.raises(ConfigError) as caught:
                await bench.ctx.plugin(dsh_todo, config)
            assert "allow_parallel_in_progress" in str(caught.value)


async def test_C113_everything_goes_with_the_plugin() -> None:
    async with bench_with() as (bench, agent):
        await bench.ctx.unplug(dsh_todo)
        assert bench.tools.names() == []
        assert "todos" not in bench.ctx.session_projections.snapshot(agent.session).values
