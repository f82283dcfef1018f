"""What the parts of the loop share: its services, its settings and the owner of its tasks."""

from collections.abc import Callable, Coroutine
from contextvars import Context as Variables
from contextvars import copy_context
from typing import Protocol

from anyio.abc import TaskGroup

from dsh_agent import AgentRegistry
from dsh_cordis import Context
from dsh_llm import LlmService
from dsh_session import SessionConfig, SessionStore
from dsh_session_persistence import SessionPersistence
from dsh_session_projection import SessionProjectionRegistry
from dsh_system_prompt import SystemPrompt
from dsh_tools import ToolRegistry

from .clock import Clock, SystemClock
from .grace import Grace


class LoopContext(Context):
    """What the loop needs."""

    sessions: SessionStore
    session_projections: SessionProjectionRegistry
    llm: LlmService
    system_prompt: SystemPrompt
    tools: ToolRegistry
    agents: AgentRegistry
    session_persistence: SessionPersistence | None = None
    clock: Clock | None = None


class LoopSettings(Protocol):
    """The live settings; `dsh_agent_loop.Config` is one."""

    @property
    def max_parallel_tool_calls(self) -> int:
        """How many tool bodies of one agent may overlap."""
        ...

    @property
    def cancel_grace_ms(self) -> int | None:
        """How long work may take to end by itself after an abort."""
        ...

    @property
    def abandon_grace_ms(self) -> int:
        """How long it may take to end once it was cancelled natively."""
        ...

    @property
    def listener_grace_ms(self) -> int:
        """How long listener tasks may go on after the driver went idle."""
        ...


class LoopRuntime:
    """Services, settings and tasks; one per mounted loop."""

    def __init__(self, ctx: LoopContext, settings: LoopSettings) -> None:
        self.ctx = ctx
        self.settings = settings
        self.accepting = True
        """False once the loop unloads: no driver starts any more."""
        self.clock: Clock = ctx.clock or SystemClock()
        self.now_ms: Callable[[], int] = SessionConfig().now_ms
        self._tasks: TaskGroup | None = None
        self._variables: Variables = copy_context()

    def open(self, tasks: TaskGroup) -> None:
        """Take the group that owns every driver, teardown and tool task."""
        self._tasks = tasks
        # Senders come from anywhere; a driver must not inherit the variables of one of them.
        self._variables = copy_context()

    def start(self, fn: Callable[[], Coroutine[object, object, None]], name: str) -> None:
        """Run a task of the loop's own, without the caller's context variables."""
        self._variables.copy().run(self.start_here, fn, name)

    def start_here(self, fn: Callable[[], Coroutine[object, object, None]], name: str) -> None:
        """Run a task of the loop that goes on with the caller's context variables."""
        if self._tasks is None:
            raise RuntimeError("the agent loop is not running")
        self._tasks.start_soon(fn, name=name)

    @property
    def grace(self) -> Grace:
        """How long work may go on after an abort."""
        cancel = self.settings.cancel_grace_ms
        return Grace(
            cancel_s=None if cancel is None else cancel / 1000,
            abandon_s=self.settings.abandon_grace_ms / 1000,
            clock=self.clock,
        )
