"""Agents that a configuration names: started with the loop, each on its own."""

import uuid
from collections.abc import Sequence
from typing import Protocol

from dsh_agent import AgentOptions, AgentRegistry, ConfigStartFailed
from dsh_cordis import Context
from dsh_session import SessionId, SessionMeta
from dsh_session_persistence import SessionPersistence, SessionPersistenceNotFoundError

from ._log import log
from .runtime import LoopSettings
from .service import AgentLoop


class _Launch(Protocol):
    """Which session an agent is started over; `dsh_agent_loop.config.Launch` is one."""

    @property
    def session_id(self) -> str | None: ...
    @property
    def resume_session_id(self) -> str | None: ...


class _Described(Protocol):
    """An agent as configured; `dsh_agent_loop.config.ConfiguredAgent` is one."""

    @property
    def id(self) -> str: ...
    @property
    def provider(self) -> str | None: ...
    @property
    def model(self) -> str | None: ...
    @property
    def reasoning_effort(self) -> str | None: ...
    @property
    def max_tokens(self) -> int | None: ...
    @property
    def cwd(self) -> str | None: ...


class LoopPlan(LoopSettings, Protocol):
    """Settings and configured agents; `dsh_agent_loop.Config` is one."""

    def launches(self) -> Sequence[tuple[_Described, _Launch]]:
        """Each configured agent with what it is started over."""
        ...


class ConfiguredContext(Context):
    """What starting configured agents needs."""

    agents: AgentRegistry
    agent_loop: AgentLoop
    session_persistence: SessionPersistence | None = None


class ConfiguredAgents:
    """The plugin that starts them; they go down with it."""

    name = "configured_agents"

    def __init__(self, launches: Sequence[tuple[_Described, _Launch]]) -> None:
        self._launches = launches

    def apply(self, ctx: ConfiguredContext) -> None:
        """Start each agent in a task of its own; one that fails concerns no other."""
        for agent, launch in self._launches:
            ctx.spawn(_start, ctx, agent, launch, name=f"start of agent {agent.id}")


async def _start(ctx: ConfiguredContext, agent: _Described, launch: _Launch) -> None:
    named = launch.resume_session_id or launch.session_id
    session_id = SessionId(named or f"{agent.id}-session-{uuid.uuid4()}")
    try:
        await _create_or_resume(ctx, agent, launch, session_id)
    except Exception as error:  # noqa: BLE001  # told to the listeners; the others start all the same
        if ctx.agent_loop.accepting:
            log().error("agent.configured_start_failed", agent=agent.id, session=session_id)
            ctx.emit(ConfigStartFailed(session_id=session_id, error=error))


async def _create_or_resume(
    ctx: ConfiguredContext, agent: _Described, launch: _Launch, session_id: SessionId
) -> None:
    options = AgentOptions(
        provider=agent.provider,
        model=agent.model,
        reasoning_effort=agent.reasoning_effort,
        max_tokens=agent.max_tokens,
    )
    if launch.resume_session_id is None and launch.session_id is not None:
        await ctx.agent_loop.drained(session_id)
    if launch.resume_session_id is not None or (
        launch.session_id is not None and await _is_stored(ctx, session_id)
    ):
        await ctx.agents.resume(session_id, agent_options=options)
    else:
        meta = SessionMeta(cwd=agent.cwd)
        await ctx.agents.create(session_id=session_id, agent_options=options, meta=meta)


async def _is_stored(ctx: ConfiguredContext, session_id: SessionId) -> bool:
    """Whether there is history; a failure to find out is no licence to begin afresh."""
    if ctx.session_persistence is None:
        return False
    try:
        await ctx.session_persistence.stat(session_id)
    except SessionPersistenceNotFoundError:
        return False
    return True
