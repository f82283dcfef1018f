"""A scripted model, and a whole stack around one agent."""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager

import anyio
import anyio.lowlevel

from dsh_agent import (
    Agent,
    AgentError,
    AgentHandle,
    AgentRegistry,
)
from dsh_agent_loop.invariant import RequestInvariantError, invariant
from dsh_brand import JsonValue
from dsh_cordis import Context, Plugin
from dsh_llm import (
    AbortSignal,
    BlockEnd,
    BlockStart,
    CallId,
    ErrorFinish,
    FinishChunk,
    GenerateOptions,
    LlmFailure,
    LlmModelContext,
    LlmModelInfo,
    LlmProviderInfo,
    LlmResolvedModelInfo,
    LlmService,
    MaxTokensFinish,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallsFinish,
)
from dsh_session import Session, SessionConfig, SessionEventData, SessionStore
from dsh_session_projection import SessionProjectionRegistry
from dsh_system_prompt import Config as PromptConfig
from dsh_system_prompt import SystemPrompt
from dsh_tools import ToolDefinition, ToolOutput, ToolRegistry, ToolRunContext

from .recording import Recorder

ToolBody = Callable[[ToolRunContext], Awaitable[str]]

Step = StreamChunk | Callable[[], object]
"""A chunk, or something to do before the next one; an awaitable it returns is awaited."""


def say(text: str) -> list[Step]:
    """A reply of one text block in one delta."""
    return [
        BlockStart(0, "text"),
        TextDelta(0, text),
        BlockEnd(0, TextBlock(text)),
        FinishChunk(StopFinish()),
    ]


def call(*calls: tuple[str, str, str]) -> list[Step]:
    """A reply that asks for tools.

    Args:
        *calls: Id, name and arguments of each.
    """
    steps: list[Step] = []
    for index, (call_id, name, arguments) in enumerate(calls):
        block = ToolCallBlock(id=CallId(call_id), name=name, arguments=arguments)
        steps += [BlockStart(index, "tool-call"), BlockEnd(index, block)]
    return [*steps, FinishChunk(ToolCallsFinish())]


def fail(message: str = "overloaded", code: str = "SERVER") -> list[Step]:
    """A reply that fails at once."""
    return [FinishChunk(ErrorFinish(LlmFailure(message=message, code=code)))]


def cut(text: str) -> list[Step]:
    """A reply that hits the output limit."""
    return [BlockStart(0, "text"), TextDelta(0, text), FinishChunk(MaxTokensFinish())]


class ScriptedModel:
    """An adapter that plays replies in order and keeps the requests."""

    def __init__(self, *replies: Sequence[Step], context_window: int | None = None) -> None:
        self.replies = list(replies)
        self.requests: list[GenerateOptions] = []
        self.closed = 0
        self._window = context_window

    async def stream(self, options: GenerateOptions) -> AsyncIterator[StreamChunk]:
        """Play the next reply; text `done` when there is none left."""
        self.requests.append(options)
        reply = self.replies.pop(0) if self.replies else say("done")
        try:
            for step in reply:
                await anyio.lowlevel.checkpoint()
                if callable(step):
                    answer = step()
                    if hasattr(answer, "__await__"):
                        await answer
                else:
                    yield step
        finally:
            self.closed += 1

    async def list_models(
        self, provider: str, signal: AbortSignal | None = None
    ) -> Sequence[LlmModelInfo]:
        """One model."""
        return [LlmModelInfo(provider=provider, id="m", name="M")]

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> LlmResolvedModelInfo:
        """Any model."""
        context = None if self._window is None else LlmModelContext(context_window=self._window)
        return LlmResolvedModelInfo(provider=provider, id=model, name=model, context=context)

    def provider_info(self, provider: str) -> LlmProviderInfo:
        """The route."""
        return LlmProviderInfo(id=provider, name=provider)

    def provider_retry_policy(self, provider: str) -> None:
        """No policy of its own."""


class LoopStack:
    """A root context with everything that an agent needs, and one agent."""

    def __init__(self, ctx: Context, model: ScriptedModel, recorder: Recorder) -> None:
        self.ctx = ctx
        self.model = model
        self.recorder = recorder
        self.handle: AgentHandle

    @property
    def agent(self) -> Agent:
        """The agent."""
        return self.handle.agent

    def add_tool(self, name: str, body: ToolBody, *, parallel: bool = False) -> None:
        """Register a tool without parameters that answers with a text.

        Args:
            name: Of the tool.
            body: Given the running call.
            parallel: Whether its calls may overlap.
        """

        async def execute(arguments: JsonValue, run: ToolRunContext) -> str:
            return await body(run)

        self.ctx.tools.register(
            ToolDefinition(
                name=name,
                description=name,
                parameters={"type": "object", "properties": {}},
                output=ToolOutput(schema={"type": "string"}, render=lambda arguments, value: value),
                execute=execute,
                is_concurrency_safe=(lambda arguments: True) if parallel else None,
            )
        )

    @contextmanager
    def refusing(self, *types: str) -> Generator[list[str]]:
        """Let the agent's log refuse events of some types.

        Yields:
            The types; what is taken out of the list is accepted again.
        """
        session, refused = self.agent.session, list(types)
        append = Session.append

        def refuse(self: Session, data: SessionEventData, **more: object) -> object:
            if self is session and data.type in refused:
                raise RuntimeError("disk full")
            return append(self, data, **more)  # type: ignore[arg-type]  # passed on as it came

        Session.append = refuse  # type: ignore[method-assign,assignment]  # for the block only
        try:
            yield refused
        finally:
            Session.append = append  # type: ignore[method-assign]  # as it was

    async def run(self, text: str) -> list[str]:
        """Send a follow-up, wait until the agent is idle, and take the lines."""
        self.agent.followup(text)
        with anyio.fail_after(5):
            await self.agent.when_idle()
        return self.recorder.take()


@asynccontextmanager
async def loop_stack(
    *replies: Sequence[Step],
    config: Mapping[str, object] | None = None,
    prompt: Mapping[str, object] | None = None,
    before: Callable[[Context], object] | None = None,
) -> AsyncGenerator[LoopStack]:
    """Open a stack over a scripted model; its lines begin behind the creation of the agent.

    Args:
        *replies: What the model answers, in order.
        config: Of the loop.
        prompt: Of the system prompt; empty by default.
        before: Called with the root context before the agent is created.
    """
    model = ScriptedModel(*replies)
    async with Context() as root:
        mount_loop(root, config=config, prompt=prompt)
        if before is not None:
            before(root)
        await root.settled()
        root.llm.register_adapter(["test"], model)
        broken: list[RequestInvariantError] = []

        def watch(event: AgentError) -> None:
            if isinstance(event.error, RequestInvariantError):
                broken.append(event.error)

        root.on(AgentError, watch, everywhere=True)
        stack = LoopStack(root, model, Recorder(root))
        stack.handle = await root.agents.create(provider="test", model="m")
        stack.recorder.take()
        yield stack
        if broken:
            raise broken[0]


def mount_loop(
    root: Context,
    *,
    config: Mapping[str, object] | None = None,
    prompt: Mapping[str, object] | None = None,
    sessions: SessionConfig | None = None,
) -> None:
    """Mount all that an agent needs, and the companion that checks each request."""
    import dsh_agent_loop

    quiet = {"include_harness_identity": False} if prompt is None else prompt
    parts: list[tuple[Plugin, object]] = [
        (SessionStore, sessions),
        (SessionProjectionRegistry, None),
        (LlmService, None),
        (SystemPrompt, PromptConfig.model_validate(quiet)),
        (ToolRegistry, None),
        (AgentRegistry, None),
        (dsh_agent_loop, config),
        (invariant, None),
    ]
    for part, settings in parts:
        _ = root.plugin(part, settings)
