"""Who started the running code: a context variable that holds the exact agent.

It attributes; it proves neither that the agent lives nor that it may do anything.
"""

import inspect
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, Token
from typing import TypeVar

import anyio

from dsh_cordis import Context, FiberState, Handle, InternalStatus

from .errors import InitiatorError
from .handle import Agent

T = TypeVar("T")


class _Boundary:
    """Code that runs as started by an agent, or by nobody."""

    __slots__ = ("agent", "outer", "over")

    agent: Agent | None
    outer: "_Boundary | None"
    over: bool

    def __init__(self, agent: Agent | None, outer: "_Boundary | None") -> None:
        self.agent = agent
        # A task outlives the boundary that it was started in; what has ended is no lineage.
        while outer is not None and outer.over:
            outer = outer.outer
        self.outer = outer
        self.over = False


_innermost: ContextVar[_Boundary | None] = ContextVar("dsh_agent_initiator", default=None)


def current_initiator() -> Agent | None:
    """The agent whose activity runs this code, if any."""
    boundary = _innermost.get()
    return None if boundary is None else boundary.agent


def require_initiator() -> Agent:
    """The agent whose activity runs this code.

    Raises:
        InitiatorError: No agent's activity does.
    """
    agent = current_initiator()
    if agent is None:
        raise InitiatorError(
            "no agent started this code; run it inside `ctx.agents.with_initiator(agent, fn)`",
            "NO_INITIATOR",
        )
    return agent


class initiated_by:  # noqa: N801  # used as a function
    """Run a block as started by `agent`, or by nobody; nesting restores."""

    __slots__ = ("_boundary", "_token")

    def __init__(self, agent: Agent | None) -> None:
        self._boundary = _Boundary(agent, _innermost.get())

    def __enter__(self) -> _Boundary:
        self._token: Token[_Boundary | None] = _innermost.set(self._boundary)
        return self._boundary

    def __exit__(self, *exc: object) -> None:
        _innermost.reset(self._token)
        self._boundary.over = True


class Boundaries:
    """The boundaries that one registry opened; its end waits for those that still run.

    `ctx` is the registry's; while any boundary runs, it is watched for an unload.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._watch: Handle | None = None
        self._running: dict[_Boundary, None] = {}
        self._spared: set[_Boundary] = set()
        """They wait for the end of the registry themselves."""
        self._closed = False
        self._ended: anyio.Event | None = None
        """Made by who waits for the end of the running ones."""

    def check(self) -> None:
        """Refuse once the registry goes down.

        Raises:
            InitiatorError: It does, or did.
        """
        if self._closed:
            raise InitiatorError(
                "the agent registry was unloaded; nothing is attributed to agents any more",
                "INITIATOR_DISPOSED",
            )

    def run_as(self, agent: Agent | None, fn: Callable[[], T]) -> T:
        """Call `fn` in a boundary; an awaitable it returns runs wholly in one, too."""
        self.check()
        with initiated_by(agent):
            result = fn()
        if inspect.iscoroutine(result):
            # The caller awaits it after this frame has restored its own value.
            return self._await_as(agent, result)  # type: ignore[return-value]  # T is an Awaitable here
        return result

    async def _await_as(
        self, agent: Agent | None, awaitable: Coroutine[object, object, object]
    ) -> object:
        if self._closed:
            awaitable.close()
            self.check()
        with initiated_by(agent) as boundary:
            if self._watch is None:
                self._watch = self._ctx.on(InternalStatus, self._note_unload, everywhere=True)
            self._running[boundary] = None
            try:
                return await awaitable
            finally:
                self._leave(boundary)

    def _leave(self, boundary: _Boundary) -> None:
        del self._running[boundary]
        if self._ended is not None:
            self._ended.set()
        if not self._running and self._watch is not None:
            self._watch()
            self._watch = None

    def _note_unload(self, event: InternalStatus) -> None:
        """An unload is told in the task that asked for it; its boundaries cannot be waited for."""
        if event.fiber.state is not FiberState.UNLOADING:
            return
        fiber: object = self._ctx.fiber
        while fiber is not None and fiber is not event.fiber:
            fiber = getattr(fiber, "parent", None)
        boundary = None if fiber is None else _innermost.get()
        while boundary is not None:
            self._spared.add(boundary)
            boundary = boundary.outer

    async def close(self) -> None:
        """Open no more boundaries and wait for those that run."""
        self._closed = True
        while self._running.keys() - self._spared:
            self._ended = anyio.Event()
            await self._ended.wait()
