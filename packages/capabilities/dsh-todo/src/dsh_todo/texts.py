"""What models read about the todo list. Changed on purpose only: a test holds each."""

from typing import Final

_BASE: Final = (
    "Keep a todo list for the task at hand. Each call replaces the whole list, so always send "
    "every entry. Use it for work of several steps: list the steps first, mark a step in_progress "
    "when you begin it and completed as soon as it is done. "
)
SERIAL: Final = _BASE + "At most one entry may be in_progress at a time."
PARALLEL: Final = _BASE + "Several entries may be in_progress if they really run at the same time."

TODOS: Final = "The complete list, in the order of the work."
CONTENT: Final = "What is to be done, as a short instruction; unique in the list."
STATUS: Final = "How far it is."

UPDATED: Final = (
    "Updated todo list: {pending} pending, {in_progress} in progress, {completed} completed."
)
CLEARED: Final = "Updated todo list: it is empty now."

REFUSED: Final = "the todo list was not changed: {problems}"
EMPTY: Final = "todos[{index}].content is empty"
DUPLICATE: Final = "todos[{index}].content repeats todos[{first}].content {content!r}"
TOO_MANY: Final = "{count} entries are in_progress, but only one may be; finish or postpone others"
NO_AGENT: Final = "todo_write keeps the list of the calling agent, and this call has no agent"
