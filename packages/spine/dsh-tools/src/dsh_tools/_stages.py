"""What a stage hands out: an answer that is there already, or what remains to be awaited."""

from collections.abc import Awaitable, Callable, Generator
from types import CoroutineType
from typing import Any, Final, Generic, NoReturn, TypeVar

from .execution import Execution

T = TypeVar("T")


class Given(Generic[T]):
    """An answer that is there; may be awaited any number of times."""

    __slots__ = ("_value",)

    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Generator[None, None, T]:
        return self._value
        yield


class Failing:
    """An answer that will not come, since asking for it failed."""

    __slots__ = ("_error",)

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __await__(self) -> Generator[None, None, NoReturn]:
        raise self._error
        yield


class Stage(Generic[T]):
    """A stage that has begun: its synchronous part is over. Awaiting it, once, runs the rest.

    Dropping one that is not awaited leaves its call without a result.

    Attributes:
        immediate: Awaiting it never suspends and runs no code of listeners, guards or approval, so
            that it needs no task and cannot be cancelled. Where it is false, start a task.
    """

    __slots__ = ("_asked", "_execution", "_rest", "immediate")

    def __init__(
        self,
        execution: Execution,
        rest: Callable[[], Awaitable[T]],
        asked: object = None,
        *,
        immediate: bool = False,
    ) -> None:
        """Made by `ToolScheduler`; `asked` is the answer of listeners that `rest` awaits."""
        self._execution = execution
        self._rest = rest
        self._asked = asked
        self.immediate: Final = immediate

    def __await__(self) -> Generator[Any, None, T]:  # as any coroutine
        self._asked = (
            None  # the rest takes care of it, and this object may be gone before that ends
        )
        return self._rest().__await__()

    def alone(self) -> "Stage[T]":
        """This stage, for a task that was started for it and is cancelled by cancel scopes only.

        What is to be awaited then runs in that task; else it gets another one, in which a
        cancellation of its own making can be told from one of the awaiting task.
        """
        self._execution.alone = True
        return self

    def __del__(self) -> None:
        close_unused(self._asked)


def close_unused(asked: object) -> None:
    """End a coroutine that will not be awaited any more, without a warning."""
    if isinstance(asked, CoroutineType):
        asked.close()
