"""`ctx.agent_loop`: the default driver of agents, and their factory."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import ClassVar

import anyio
from typing_extensions import override

from dsh_agent import (
    Agent,
    AgentCreationError,
    AgentHandle,
    CreateRequest,
    ResumeRequest,
    inbox_unit,
    model_selection_unit,
    turn_boundary_unit,
)
from dsh_cordis import Context, Service
from dsh_session import SessionId
from dsh_system_prompt import AssemblyContext

from .agent import LoopAgent
from .creation import AgentLife
from .grace import CensusEntry
from .runtime import LoopContext, LoopRuntime, LoopSettings


class AgentLoop(Service):
    """Makes and drives agents; registered as the factory of `ctx.agents`.

    Unloading it disposes every agent it made; their pending input stays in the log.
    """

    key: ClassVar[str] = "agent_loop"

    def __init__(self, ctx: LoopContext, config: LoopSettings) -> None:
        super().__init__(ctx)
        self._runtime = LoopRuntime(ctx, config)
        self._lives: dict[AgentLife, None] = {}
        ctx.session_projections.register(inbox_unit)
        ctx.session_projections.register(model_selection_unit)
        ctx.session_projections.register(turn_boundary_unit)
        self._register_variables(ctx)
        self._home = ctx

    @override
    async def init(self) -> None:
        """Open the group that owns all tasks of the loop, then offer to make agents."""
        await self._home.effect(self._tasks, label="agent tasks").ready()
        self._runtime.ctx.agents.set_factory(self)

    @asynccontextmanager
    async def _tasks(self) -> AsyncGenerator[None]:
        async with anyio.create_task_group() as tasks:
            self._runtime.open(tasks)
            yield
            self._runtime.accepting = False
            await self._dispose_all()

    async def _dispose_all(self) -> None:
        reason = AgentCreationError(
            "the agent loop was unloaded while the agent was being created", "LOOP_INACTIVE"
        )
        for end in [life.dispose(reason) for life in list(self._lives)]:
            # What a teardown raises is logged by itself; the others are waited for all the same.
            with suppress(Exception):
                await end

    # ---- the factory -----------------------------------------------------------------------

    async def create(self, owner: Context, request: CreateRequest) -> AgentHandle:
        """Make a new agent whose lifetime `owner` bounds; called by `ctx.agents.create()`.

        Args:
            owner: What the agent goes down with.
            request: Session, options and set-up.

        Raises:
            AgentCreationError: The creation was aborted.
        """
        return await self._begin(owner, request).create(request)

    async def resume(self, owner: Context, request: ResumeRequest) -> AgentHandle:
        """Make an agent over a stored session; called by `ctx.agents.resume()`.

        Args:
            owner: What the agent goes down with.
            request: Which session, options and set-up.

        Raises:
            AgentCreationError: No store is mounted, or the creation was aborted.
        """
        return await self._begin(owner, request).resume(request)

    def _begin(self, owner: Context, request: CreateRequest | ResumeRequest) -> AgentLife:
        if not self._runtime.accepting:
            raise AgentCreationError("the agent loop is being unloaded", "LOOP_INACTIVE")
        if request.signal is not None and request.signal.aborted:
            reason = request.signal.reason
            if isinstance(reason, Exception):
                raise reason
            raise AgentCreationError(
                f"the creation of the agent was aborted ({reason!r})", "CREATION_ABORTED"
            )
        # The caller's lifetime with the loop's services: what a view's context is.
        view = owner.get(AgentLoop)
        if view is None:
            raise AgentCreationError("the agent loop is not active here", "LOOP_INACTIVE")
        return AgentLife(self._runtime, view.ctx, request, self._lives)

    @property
    def accepting(self) -> bool:
        """False once the loop unloads."""
        return self._runtime.accepting

    async def drained(self, session_id: SessionId) -> None:
        """Wait until an agent of that id that is on its way out is gone; a live one is left alone.

        Args:
            session_id: Id of the agent.
        """
        for life in list(self._lives):
            if life.leaves(session_id):
                with suppress(Exception):  # its failure is for whoever disposed it
                    await life.dispose()

    # ---- inspection ------------------------------------------------------------------------

    def census(self, agent: Agent) -> list[CensusEntry]:
        """What is alive for an agent: drivers, tool bodies, listener tasks, streams.

        Args:
            agent: One of this loop.
        """
        return agent.census.entries() if isinstance(agent, LoopAgent) else []

    def _register_variables(self, ctx: LoopContext) -> None:
        def cwd(assembly: AssemblyContext) -> str | None:
            agent = assembly.agent
            return agent.session.header.cwd if isinstance(agent, LoopAgent) else None

        ctx.system_prompt.variable("provider", lambda given: given.variables.get("provider"))
        ctx.system_prompt.variable("model", lambda given: given.variables.get("model"))
        ctx.system_prompt.variable("cwd", cwd)
