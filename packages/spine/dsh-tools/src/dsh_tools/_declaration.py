"""What can be wrong with a decorated function and its options, before its parameters are read."""

import inspect
import math
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, get_args

from .errors import ToolDeclarationError
from .types import CancelMode

NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every provider accepts as the name of a tool."""

_FUNCTIONS: Final = (
    "render",
    "presentation_meta",
    "present_call",
    "present_result",
    "project_content",
    "finalize_content",
)


def check_keywords(given: Collection[str], known: Collection[str]) -> None:
    """Refuse keywords that `tool` does not have.

    Raises:
        ToolDeclarationError: All of them, and those there are.
    """
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ToolDeclarationError(
            f"tool() has no keywords {', '.join(unknown)}; there are {', '.join(sorted(known))}"
        )


def check_function(function: object) -> None:
    """Refuse what cannot be the body of a tool.

    Raises:
        ToolDeclarationError: It is no function or method, or gives more than one value.
    """
    if isinstance(function, str):
        raise ToolDeclarationError(f"tool() takes a function; write @tool(name={function!r})")
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ToolDeclarationError(
            f"tool() takes a function or a bound method, not {function!r:.80}; call it in a "
            "function with annotations and a docstring"
        )
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        raise ToolDeclarationError(f"tool {function.__name__!r}: it yields; return one value")


def check_runs(function: Callable[..., object], where: str, *, thread: bool) -> None:
    """Refuse a function that would block the event loop, or that no thread can run.

    Raises:
        ToolDeclarationError: Synchronous without `thread`, or the other way round.
    """
    if inspect.iscoroutinefunction(function) == thread:
        raise ToolDeclarationError(
            f"{where}: thread=True is for synchronous functions only"
            if thread
            else f"{where}: make it async, or pass thread=True to run it in a worker thread"
        )


def check_options(name: str, options: Mapping[str, Any]) -> None:
    """Refuse options of a kind that would show only in a call, or never.

    Raises:
        ToolDeclarationError: The first that is wrong.
    """
    where = f"tool {name!r}"
    if not NAME.fullmatch(name):
        raise ToolDeclarationError(
            f"{where}: a name is 1 to 64 letters, digits, '_' or '-', or providers refuse it; pass "
            "name="
        )
    if not isinstance(options.get("description", ""), str):
        raise ToolDeclarationError(f"{where}: description must be a text")
    for key in _FUNCTIONS:
        given = options.get(key)
        if given is not None and not callable(given):
            raise ToolDeclarationError(f"{where}: {key} must be a function, not {given!r:.80}")
    safe = options.get("concurrency_safe", False)
    if not isinstance(safe, bool) and not callable(safe):
        raise ToolDeclarationError(
            f"{where}: concurrency_safe must be True, False or a function, not {safe!r:.80}"
        )
    cancel, modes = options.get("cancel", "scope"), get_args(CancelMode)
    if cancel not in modes:
        raise ToolDeclarationError(
            f"{where}: cancel must be {' or '.join(map(repr, modes))}, not {cancel!r:.80}"
        )
    check_timeout(options.get("timeout_ms"), where)


def check_timeout(timeout_ms: object, where: str) -> None:
    """Refuse a limit that is none.

    Raises:
        ToolDeclarationError: Not a positive, finite number.
    """
    if timeout_ms is None:
        return
    is_flag = isinstance(timeout_ms, bool)
    if not is_flag and isinstance(timeout_ms, int | float) and 0 < timeout_ms < math.inf:
        return
    raise ToolDeclarationError(
        f"{where}: timeout_ms must be a positive number of milliseconds, not {timeout_ms!r:.80}"
    )
