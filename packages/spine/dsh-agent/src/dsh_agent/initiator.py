"""Who started the running code: a context variable that holds the exact agent.

It attributes; it proves neither that the agent lives nor that it may do anything.
"""

import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, Token
from typing import TypeVar

from .errors import InitiatorError
from .handle import Agent

T = TypeVar("T")

_initiator: ContextVar[Agent | None] = ContextVar("dsh_agent_initiator", default=None)


def current_initiator() -> Agent | None:
    """The agent whose activity runs this code, if any."""
    return _initiator.get()


def require_initiator() -> Agent:
    """The agent whose activity runs this code.

    Raises:
        InitiatorError: No agent's activity does.
    """
    agent = _initiator.get()
    if agent is None:
        raise InitiatorError(
            "no agent started this code; run it inside `with_initiator(agent, fn)`", "NO_INITIATOR"
        )
    return agent


class initiated_by:  # noqa: N801  # used as a function
    """Run a block as started by `agent`, or by nobody; nesting restores."""

    __slots__ = ("_agent", "_token")

    def __init__(self, agent: Agent | None) -> None:
        self._agent = agent

    def __enter__(self) -> None:
        self._token: Token[Agent | None] = _initiator.set(self._agent)

    def __exit__(self, *exc: object) -> None:
        _initiator.reset(self._token)


def with_initiator(agent: Agent, fn: Callable[[], T]) -> T:
    """Call `fn` as started by `agent`; an awaitable it returns runs wholly inside, too."""
    return _run_as(agent, fn)


def without_initiator(fn: Callable[[], T]) -> T:
    """Call `fn` as started by nobody."""
    return _run_as(None, fn)


def _run_as(agent: Agent | None, fn: Callable[[], T]) -> T:
    with initiated_by(agent):
        result = fn()
    if inspect.iscoroutine(result):
        # The caller awaits it after this frame has restored its own value.
        return _await_as(agent, result)  # type: ignore[return-value]  # T is an Awaitable here
    return result


async def _await_as(agent: Agent | None, awaitable: Awaitable[object]) -> object:
    with initiated_by(agent):
        return await awaitable
