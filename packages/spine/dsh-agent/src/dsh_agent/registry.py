"""The registry of live agents, `ctx.agents`. Upstream: packages/agent/agent/src/registry.ts."""

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Protocol, TypeVar

import anyio
import msgspec

from dsh_cordis import Context, Handle, Service
from dsh_llm import AbortSignal
from dsh_session import SessionEvent, SessionId, SessionMeta

from .errors import AgentRegistryError
from .events import AgentCreated, AgentDisposed, AgentSessionStart
from .handle import Agent, AgentHandle
from .initiator import Boundaries
from .types import AgentOptions, CreationSource

T = TypeVar("T")


class Prepared(Protocol):
    """What a set-up may return: `commit` runs in the synchronous section that lists the agent."""

    def commit(self) -> None:
        """Make the set-up visible; raising undoes the creation."""
        ...


Setup = Callable[[Context, Agent], Awaitable[Prepared | None] | Prepared | None]
"""Composes an agent before it is announced: gets its context and itself; does not drive it."""


class CreateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a factory needs to make a new agent."""

    session_id: SessionId | None = None
    options: AgentOptions = AgentOptions()
    meta: SessionMeta | None = None
    seed: Sequence[SessionEvent] | None = None
    inherited_event_count: int = 0
    setup: Setup | None = None
    parent_agent: Agent | None = None
    signal: AbortSignal | None = None


class ResumeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a factory needs to make an agent over a stored session."""

    session_id: SessionId
    options: AgentOptions = AgentOptions()
    setup: Setup | None = None
    parent_agent: Agent | None = None
    signal: AbortSignal | None = None


class AgentFactory(Protocol):
    """Makes agents; the loop registers one with `ctx.agents.set_factory()`."""

    async def create(self, owner: Context, request: CreateRequest) -> AgentHandle:
        """Make a new agent whose lifetime `owner` bounds."""
        ...

    async def resume(self, owner: Context, request: ResumeRequest) -> AgentHandle:
        """Make an agent over a stored session whose lifetime `owner` bounds."""
        ...


class _Entry:
    """One listed agent."""

    __slots__ = ("_entries", "agent", "announced", "announcing", "detached", "parent", "settled")

    def __init__(self, entries: "dict[str, _Entry]", agent: Agent, parent: Agent | None) -> None:
        self._entries = entries
        self.agent = agent
        self.parent = parent
        self.announced = False
        self.announcing = False
        self.detached = False
        self.settled: anyio.Event | None = None
        """Made by who waits for the end of the announcement."""

    async def detach(self) -> None:
        """Take it out, after a running announcement, and tell so if one had begun; once."""
        if self.detached:
            return
        self.detached = True
        if self.announcing:
            self.settled = anyio.Event()
            with anyio.CancelScope(shield=True):
                await self.settled.wait()
        self._entries.pop(self.agent.id, None)
        if self.announced:
            self.agent.ctx.emit(AgentDisposed(agent=self.agent))


class AgentRegistry(Service):
    """Lists live agents and makes new ones through the mounted loop."""

    key: ClassVar[str] = "agents"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._entries: dict[str, _Entry] = {}
        self._factories: list[AgentFactory] = []
        self._boundaries = Boundaries(ctx)
        ctx.effect(lambda: self._boundaries.close, label="initiators")

    # ---- reading ---------------------------------------------------------------------------

    def get(self, agent_id: str) -> Agent | None:
        """The live agent of that id."""
        entry = self._entries.get(agent_id)
        return None if entry is None else entry.agent

    def roots(self) -> list[Agent]:
        """The live agents without a parent."""
        return [entry.agent for entry in self._entries.values() if entry.parent is None]

    def list(self) -> list[Agent]:
        """All live agents, oldest first."""
        return [entry.agent for entry in self._entries.values()]

    def parent_of(self, agent: Agent) -> Agent | None:
        """Who is recorded as the agent's parent."""
        entry = self._entries.get(agent.id)
        return entry.parent if entry is not None and entry.agent is agent else None

    def is_owned_by(self, agent: Agent, ancestor: Agent) -> bool:
        """Whether `ancestor` is the agent's parent or a parent of that."""
        parent = self.parent_of(agent)
        while parent is not None and parent is not ancestor:
            parent = self.parent_of(parent)
        return parent is not None

    # ---- attribution -----------------------------------------------------------------------

    def with_initiator(self, agent: Agent, fn: Callable[[], T]) -> T:
        """Call `fn` as started by `agent`; a coroutine it returns runs wholly inside, too.

        Unloading the registry waits for what runs so.

        Args:
            agent: The exact agent; it need not be live.
            fn: What to call; `current_initiator()` tells it the agent.

        Raises:
            InitiatorError: The registry is being unloaded.
        """
        return self._boundaries.run_as(agent, fn)

    def without_initiator(self, fn: Callable[[], T]) -> T:
        """Call `fn` as started by nobody; as `with_initiator` otherwise.

        Args:
            fn: What to call, such as work that outlives the agent's activity.

        Raises:
            InitiatorError: The registry is being unloaded.
        """
        return self._boundaries.run_as(None, fn)

    # ---- making ----------------------------------------------------------------------------

    async def create(
        self,
        *,
        session_id: SessionId | None = None,
        provider: str | None = None,
        model: str | None = None,
        reasoning_effort: str | None = None,
        max_tokens: int | None = None,
        agent_options: AgentOptions | None = None,
        meta: SessionMeta | None = None,
        seed: Sequence[SessionEvent] | None = None,
        inherited_event_count: int = 0,
        setup: Setup | None = None,
        parent_agent: Agent | None = None,
        signal: AbortSignal | None = None,
    ) -> AgentHandle:
        """Make a new agent, owned by the calling context.

        Args:
            session_id: Id of session and agent; minted when absent.
            provider: Route of the model.
            model: Name of the model on that route.
            reasoning_effort: One of the model's efforts.
            max_tokens: Output cap of each request.
            agent_options: The four in one value, which those given by name override.
            meta: Facts for the session header, such as its working folder.
            seed: Events that the log begins with.
            inherited_event_count: How many of them a fork inherited.
            setup: Composes the agent before it is announced.
            parent_agent: Recorded as parent; ties no lifetime.
            signal: Aborts the creation; without effect once it returned.

        Raises:
            AgentOptionsError: An option is out of range.
            AgentCreationError: The creation was aborted.
            AgentRegistryError: No loop is mounted.
        """
        request = CreateRequest(
            session_id=session_id,
            options=_options(agent_options, provider, model, reasoning_effort, max_tokens),
            meta=meta,
            seed=seed,
            inherited_event_count=inherited_event_count,
            setup=setup,
            parent_agent=parent_agent,
            signal=signal,
        )
        return await self._factory().create(self.ctx, request)

    async def resume(
        self,
        resume_session_id: SessionId,
        *,
        provider: str | None = None,
        model: str | None = None,
        reasoning_effort: str | None = None,
        max_tokens: int | None = None,
        agent_options: AgentOptions | None = None,
        setup: Setup | None = None,
        parent_agent: Agent | None = None,
        signal: AbortSignal | None = None,
    ) -> AgentHandle:
        """Make an agent over a stored session, owned by the calling context.

        The recorded choice of model outranks the options. An interrupted turn is closed first;
        input that was pending waits for the next wake.

        Args:
            resume_session_id: Id of the stored session.
            provider: Route of the model.
            model: Name of the model on that route.
            reasoning_effort: One of the model's efforts.
            max_tokens: Output cap of each request.
            agent_options: The four in one value, which those given by name override.
            setup: Composes the agent before it is announced.
            parent_agent: Recorded as parent; ties no lifetime.
            signal: Aborts the creation; without effect once it returned.

        Raises:
            AgentCreationError: No store is mounted, or the creation was aborted.
            AgentRegistryError: No loop is mounted.
        """
        request = ResumeRequest(
            session_id=resume_session_id,
            options=_options(agent_options, provider, model, reasoning_effort, max_tokens),
            setup=setup,
            parent_agent=parent_agent,
            signal=signal,
        )
        return await self._factory().resume(self.ctx, request)

    def set_factory(self, factory: AgentFactory) -> Handle:
        """Let `factory` make the agents, until the handle is called or the caller unloads.

        Raises:
            AgentRegistryError: There is one already.
        """
        if self._factories:
            raise AgentRegistryError(
                "an agent factory is registered already; unmount that loop first",
                "FACTORY_REGISTERED",
            )
        factories = self._factories

        def register() -> Callable[[], None]:
            factories.append(factory)
            return lambda: factories.remove(factory)

        return self.ctx.effect(register, label="agent factory")

    def _factory(self) -> AgentFactory:
        if not self._factories:
            raise AgentRegistryError(
                "nothing makes agents here; mount `dsh_agent_loop`", "NO_AGENT_FACTORY"
            )
        return self._factories[0]

    # ---- entries ---------------------------------------------------------------------------

    def enter(self, agent: Agent, parent: Agent | None = None) -> Callable[[], Awaitable[None]]:
        """List an agent silently.

        Returns:
            A detach: it takes this entry out, after a running announcement, and tells
            `agent/disposed` if one had begun. Calling it again does nothing.

        Raises:
            AgentRegistryError: The id is taken, or differs from the session's.
        """
        if agent.id != agent.session.id:
            raise AgentRegistryError(
                f"agent id {agent.id!r} differs from its session id {agent.session.id!r}",
                "AGENT_ID_MISMATCH",
            )
        if agent.id in self._entries:
            raise AgentRegistryError(f"agent {agent.id!r} is live already", "AGENT_EXISTS")
        entry = _Entry(self._entries, agent, parent)
        self._entries[agent.id] = entry
        return entry.detach

    async def announce(
        self, agent: Agent, source: CreationSource, signal: AbortSignal | None = None
    ) -> None:
        """Tell `agent/created`, once; a raising listener stops it.

        Raises:
            AgentRegistryError: The agent is not listed, or was announced before.
        """
        entry = self._entries.get(agent.id)
        if entry is None or entry.agent is not agent:
            raise AgentRegistryError(
                f"agent {agent.id!r} is not listed; enter it first", "AGENT_NOT_LIVE"
            )
        if entry.announced:
            raise AgentRegistryError(
                f"agent {agent.id!r} was announced already", "AGENT_ALREADY_ANNOUNCED"
            )
        entry.announced = entry.announcing = True
        try:
            if agent.ctx.has_listeners(AgentCreated, agent):
                await agent.ctx.serial(AgentCreated(agent=agent, source=source, signal=signal))
        finally:
            entry.announcing = False
            if entry.settled is not None:
                entry.settled.set()
        if agent.ctx.has_listeners(AgentSessionStart, agent):
            agent.ctx.emit(AgentSessionStart(agent=agent, source=source))

    async def register(
        self, agent: Agent, parent: Agent | None = None
    ) -> Callable[[], Awaitable[None]]:
        """List and announce an agent that something else drives.

        Returns:
            The detach of `enter`.
        """
        detach = self.enter(agent, parent)
        try:
            await self.announce(agent, "startup")
        except BaseException:
            await detach()
            raise
        return detach


def _options(
    base: AgentOptions | None,
    provider: str | None,
    model: str | None,
    reasoning_effort: str | None,
    max_tokens: int | None,
) -> AgentOptions:
    if base is None:
        return AgentOptions(
            provider=provider,
            model=model,
            reasoning_effort=reasoning_effort,
            max_tokens=max_tokens,
        )
    given = {
        "provider": provider,
        "model": model,
        "reasoning_effort": reasoning_effort,
        "max_tokens": max_tokens,
    }
    named = {name: value for name, value in given.items() if value is not None}
    return msgspec.structs.replace(base, **named) if named else base
