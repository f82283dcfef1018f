"""A bench to run tools on, and a census that remembers."""

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import cast

import msgspec

from dsh_agent import Agent
from dsh_cordis import Context, create_scope, task_census
from dsh_llm import AbortController, AbortSignal, CallId, TextBlock
from dsh_session import Session, SessionHeader, SessionId
from dsh_system_prompt import SystemPrompt

from .execution import ToolToken
from .registry import ToolRegistry
from .types import ToolDefinition, ToolExecutionInput, ToolExecutionResult, ToolFailure


class AgentStub:
    """As much of an agent as a tool call needs: an id, a session, a scoped context."""

    def __init__(self, ctx: Context, number: int, cwd: str | None, parent: object | None) -> None:
        self.id = SessionId(f"agent-{number}")
        header = SessionHeader(id=self.id, created_at=0, cwd=cwd)
        self.session = Session.create(self.id, header=header)
        self.ctx = create_scope(ctx, self, parent).ctx


class ToolBench:
    """A context with a tool registry, and calls through it.

    Attributes:
        ctx: A root context with ``ctx.tools`` and ``ctx.system_prompt``.
    """

    def __init__(self, ctx: Context, owner: Context) -> None:
        self.ctx = ctx
        self._owner = owner
        self._numbers = itertools.count(1)

    @property
    def tools(self) -> ToolRegistry:
        """The registry, as the root sees it."""
        return cast("ToolRegistry", self.ctx.tools)

    def agent(self, *, cwd: str | None = None, parent: Agent | None = None) -> Agent:
        """A caller with a scope and a session of its own."""
        return cast("Agent", AgentStub(self._owner, next(self._numbers), cwd, parent))

    def call(
        self,
        name: str,
        arguments: object,
        *,
        agent: Agent | None = None,
        signal: AbortSignal | None = None,
        parent: ToolToken | None = None,
    ) -> ToolExecutionInput:
        """A call as the loop makes it."""
        return ToolExecutionInput(
            name=name,
            arguments=arguments,
            call_id=CallId(f"call-{next(self._numbers)}"),
            signal=signal or AbortController().signal,
            agent=agent,
            parent=parent,
        )

    async def run(self, name: str, /, **arguments: object) -> ToolExecutionResult:
        """Call a tool by name, without an agent."""
        return await self.tools.execute(self.call(name, arguments))

    async def run_as(self, agent: Agent, name: str, /, **arguments: object) -> ToolExecutionResult:
        """Call a tool by name for an agent."""
        return await self.tools.execute(self.call(name, arguments, agent=agent))


class _Needs(Context):
    tools: ToolRegistry
    system_prompt: SystemPrompt


@asynccontextmanager
async def tool_bench(*definitions: ToolDefinition) -> AsyncIterator[ToolBench]:
    """A bench with these tools registered for everyone."""
    async with Context() as ctx:
        await ctx.plugin(SystemPrompt)
        await ctx.plugin(ToolRegistry)
        owners: list[Context] = []

        def own(needs: _Needs) -> None:
            owners.append(needs)

        await ctx.plugin(own)
        bench = ToolBench(ctx, owners[0])
        for definition in definitions:
            bench.tools.register(definition)
        yield bench


def text_of(result: ToolExecutionResult) -> str:
    """What the model reads of a result."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextBlock))


def code_of(result: ToolExecutionResult) -> str | None:
    """The error code of a result, if it has one."""
    info = result.error.info if isinstance(result, ToolFailure) else None
    return None if info is None else info.code


class CensusEntry(msgspec.Struct):
    """Something that runs."""

    kind: str
    label: str
    call_id: str | None
    cancel: Callable[[], None] | None


class RecordingCensus:
    """Keeps what is running, and the kinds of all that ever ran, in order."""

    def __init__(self) -> None:
        self.running: list[CensusEntry] = []
        self.kinds: list[str] = []

    def enter(
        self,
        kind: str,
        label: str,
        *,
        call_id: str | None = None,
        cancel: Callable[[], None] | None = None,
    ) -> Callable[[], None]:
        """See `dsh_cordis.TaskCensus`."""
        entry = CensusEntry(kind, label, call_id, cancel)
        self.running.append(entry)
        self.kinds.append(kind)
        return lambda: self.running.remove(entry)

    @contextmanager
    def installed(self) -> Iterator["RecordingCensus"]:
        """Account for what the calling task starts."""
        token = task_census.set(self)
        try:
            yield self
        finally:
            task_census.reset(token)
