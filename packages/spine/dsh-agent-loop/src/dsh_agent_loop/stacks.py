"""Where a task stands: for the record of work that was given up."""

import traceback
from collections.abc import Iterator
from types import CodeType, FrameType

import anyio
from anyio import TaskInfo


def stacks_below(task_id: int) -> str:
    """The stacks of a task and of those it started, outermost call and nearest task first."""
    running = anyio.get_running_tasks()
    family = [task for task in running if task.id == task_id]
    for parent in family:
        family.extend(task for task in running if task.parent_id == parent.id)
    return "\n".join(f"{task.name}\n{_stack(task)}" for task in family)


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
