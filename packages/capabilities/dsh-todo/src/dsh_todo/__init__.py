"""The todo list of an agent: the tool `todo_write` and the list as state of the session.

The package is a plugin: `ctx.plugin(dsh_todo, {"allow_parallel_in_progress": False})`. Its durable
event `todo/write` belongs to the core vocabulary (`dsh_session.TodoWrite`).
"""

from typing import TYPE_CHECKING

from .errors import TodoError
from .projection import TODOS_KEY, todos_unit
from .tool import Needs, TodoCounts, TodoEntry, TodoSettings, TodoValue, todo_tool

if TYPE_CHECKING:  # pydantic is loaded when somebody mounts or configures the plugin, not before
    from .config import Config as Config

name = "todo"


def __getattr__(attribute: str) -> object:
    if attribute == "Config":
        from .config import Config

        return Config
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


def apply(ctx: Needs, config: TodoSettings) -> None:
    """Register the tool; the state is served where projections are. See `Config`."""
    ctx.tools.register(todo_tool(config))
    ctx.inject(
        ["session_projections"],
        lambda found: found.session_projections.register(todos_unit()) and None,
    )


__all__ = [
    "TODOS_KEY",
    "Config",
    "Needs",
    "TodoCounts",
    "TodoEntry",
    "TodoError",
    "TodoSettings",
    "TodoValue",
    "apply",
    "name",
    "todo_tool",
    "todos_unit",
]
