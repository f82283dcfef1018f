"""The tool `todo_write`. Upstream: packages/tools/todo/src/index.ts."""

from collections.abc import Sequence
from typing import Annotated, Literal, Protocol, TypeAlias

import msgspec

from dsh_brand import js_trim
from dsh_cordis import Context
from dsh_session import TodoItem, TodoWrite
from dsh_tools import ToolDefinition, ToolRegistry, ToolRunContext, tool
from dsh_tools.presentation import GenericCall

from . import texts
from .errors import TodoError

TodoStatus: TypeAlias = Literal["pending", "in_progress", "completed"]

_SHOWN = 80


class Needs(Context):
    """What the plugin works with."""

    tools: ToolRegistry


class TodoSettings(Protocol):
    """What the tool is told; `Config` is one."""

    @property
    def allow_parallel_in_progress(self) -> bool:
        """Whether several entries may be in progress."""
        ...


class TodoEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One entry, as given and as returned."""

    content: Annotated[str, texts.CONTENT]
    status: Annotated[TodoStatus, texts.STATUS]


class TodoCounts(msgspec.Struct, frozen=True, rename="camel"):
    """How many entries there are of each status."""

    pending: int
    in_progress: int
    completed: int


class TodoValue(msgspec.Struct, frozen=True, rename="camel"):
    """The list that is in force now."""

    todos: list[TodoEntry]
    counts: TodoCounts


def todo_tool(settings: TodoSettings) -> ToolDefinition:
    """The definition of `todo_write`."""
    parallel = settings.allow_parallel_in_progress

    @tool(
        description=texts.PARALLEL if parallel else texts.SERIAL,
        render=_render,
        present_call=lambda arguments: GenericCall("Update the todo list", kind="other"),
    )
    async def todo_write(
        run: ToolRunContext, todos: Annotated[list[TodoEntry], texts.TODOS]
    ) -> TodoValue:
        if run.agent is None:
            raise TodoError(texts.NO_AGENT, "TODO_NO_AGENT")
        entries = _checked(todos, parallel=parallel)
        items = tuple(TodoItem(content=each.content, status=each.status) for each in entries)
        run.agent.session.append(TodoWrite(todos=items))
        return TodoValue(entries, _counts(entries))

    return todo_write


def _checked(todos: Sequence[TodoEntry], *, parallel: bool) -> list[TodoEntry]:
    entries = [TodoEntry(js_trim(each.content), each.status) for each in todos]
    first: dict[str, int] = {}
    problems: list[str] = []
    for index, entry in enumerate(entries):
        if not entry.content:
            problems.append(texts.EMPTY.format(index=index))
        elif entry.content in first:
            shown = entry.content[:_SHOWN]
            known = first[entry.content]
            problems.append(texts.DUPLICATE.format(index=index, first=known, content=shown))
        else:
            first[entry.content] = index
    running = _counts(entries).in_progress
    if running > 1 and not parallel:
        problems.append(texts.TOO_MANY.format(count=running))
    if problems:
        raise TodoError(texts.REFUSED.format(problems="; ".join(problems)), "TODO_INVALID")
    return entries


def _counts(entries: Sequence[TodoEntry]) -> TodoCounts:
    statuses = [entry.status for entry in entries]
    return TodoCounts(
        statuses.count("pending"), statuses.count("in_progress"), statuses.count("completed")
    )


def _render(arguments: object, value: dict[str, dict[str, int]]) -> str:
    counts = value["counts"]
    if not any(counts.values()):
        return texts.CLEARED
    return texts.UPDATED.format(
        pending=counts["pending"],
        in_progress=counts["inProgress"],
        completed=counts["completed"],
    )
