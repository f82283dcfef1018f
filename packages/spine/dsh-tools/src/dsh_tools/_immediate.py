"""Which bodies never wait: they need no task, no scope and no watch over their signal."""

import dis
import inspect
from collections.abc import Callable
from functools import lru_cache
from types import CodeType


def is_immediate(function: Callable[..., object]) -> bool:
    """True if `function` is async and has no ``await`` of any kind, so that it cannot suspend."""
    declared = getattr(function, "immediate", None)
    if isinstance(declared, bool):
        return declared
    code = getattr(function, "__code__", None)
    return isinstance(code, CodeType) and _never_suspends(code)


@lru_cache(maxsize=1024)
def _never_suspends(code: CodeType) -> bool:
    if not code.co_flags & inspect.CO_COROUTINE:
        return False
    # A coroutine suspends by yielding, and every form of await compiles to a loop that yields.
    return all(step.opname != "YIELD_VALUE" for step in dis.get_instructions(code))
