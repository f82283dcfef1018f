"""Where a task stands: for the record of work that was given up."""

import traceback
from collections.abc import Iterator
from types import CodeType, FrameType

import anyio
from anyio import TaskInfo


def stacks_below(task_id: int) -> str:
    """The stacks of a task and of the tasks that it started, outermost call first."""
    running = anyio.get_running_tasks()
    family = {task_id}
    told: list[str] = []
    for task in sorted(running, key=lambda each: each.id != task_id):
        if task.id == task_id or task.parent_id in family:
            family.add(task.id)
            told.append(f"{task.name}\n{_stack(task)}")
    return "\n".join(told)


def _stack(task: TaskInfo) -> str:
    frames = [(frame, frame.f_lineno) for frame in _frames(task.coro)]
    return "".join(traceback.StackSummary.extract(iter(frames)).format())


def _frames(awaitable: object) -> Iterator[FrameType]:
    """Follow a coroutine to what it waits for; anything else has no frame to show."""
    while awaitable is not None:
        frame = getattr(awaitable, "cr_frame", None) or getattr(awaitable, "gi_frame", None)
        if not isinstance(frame, FrameType) or not isinstance(frame.f_code, CodeType):
            return
        yield frame
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "gi_yieldfrom", None)
