"""For tests of agents: a scripted model, and a recorder that writes down what happens, in order."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import anyio
import anyio.lowlevel

from dsh_agent import (
    Agent,
    AgentAbandoned,
    AgentAssistantStream,
    AgentCreated,
    AgentDisposed,
    AgentError,
    AgentHandle,
    AgentRegistry,
    AgentRequest,
    AgentRequestError,
    AgentSessionStart,
    AgentStatusChanged,
    Committed,
    InboxClaimed,
    InboxDiscarded,
    InboxInserted,
    PreStep,
    PreStepDecision,
    Retry,
    StreamChunkFrame,
    StreamStart,
    TurnStopping,
)
from dsh_cordis import Context, Next, Plugin
from dsh_llm import (
    AbortSignal,
    BlockEnd,
    BlockStart,
    CallId,
    ErrorFinish,
    FinishChunk,
    GenerateOptions,
    LlmCallConfig,
    LlmFailure,
    LlmModelContext,
    LlmModelInfo,
    LlmProviderInfo,
    LlmResolvedModelInfo,
    LlmService,
    LlmStreamEvent,
    MaxTokensFinish,
    Message,
    RuntimeContextSource,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallsFinish,
    message_text,
)
from dsh_session import (
    AssistantMessageEvent,
    InboxSpliced,
    ReplaceOp,
    RequestHeaderEvent,
    SessionCreated,
    SessionDisposed,
    SessionEvent,
    SessionEventAppended,
    SessionStore,
    StepEnd,
    StepStart,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)
from dsh_session_projection import SessionProjectionRegistry
from dsh_system_prompt import Config as PromptConfig
from dsh_system_prompt import PromptAssembly, SystemPrompt, SystemPromptAssemble
from dsh_tools import (
    PostToolDecision,
    PreToolDecision,
    ToolExecutionResult,
    ToolRegistry,
    ToolsExecute,
    ToolsPostExecute,
    ToolsPreExecute,
    ToolsResult,
)

from .invariant import invariant

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


class Recorder:
    """Writes down durable events plainly and live events with a `~`; see `lines`."""

    def __init__(self, ctx: Context) -> None:
        self.lines: list[str] = []
        self.ctx = ctx
        self._session_events()
        self._agent_events()
        self._turn_events()
        self._tool_events()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.lines.clear()

    def note(self, line: str) -> None:
        """Write a line of one's own."""
        self.lines.append(line)

    def take(self) -> list[str]:
        """The lines so far; they are not given again."""
        lines, self.lines = self.lines, []
        return lines

    def _session_events(self) -> None:
        on = self.ctx.on
        on(SessionCreated, lambda e: self.note("~session/created"), everywhere=True)
        on(SessionDisposed, lambda e: self.note("~session/disposed"), everywhere=True)
        on(SessionEventAppended, lambda e: self.note(line_of(e.event)), everywhere=True)

    def _agent_events(self) -> None:
        async def created(event: AgentCreated) -> None:
            self.note(f"~agent/created {event.source}")

        on = self.ctx.on
        on(AgentCreated, created, everywhere=True)
        on(AgentSessionStart, lambda e: self.note("~agent/session-start"), everywhere=True)
        on(AgentDisposed, lambda e: self.note("~agent/disposed"), everywhere=True)
        on(AgentStatusChanged, lambda e: self.note(f"~status {e.status}"), everywhere=True)
        on(InboxInserted, lambda e: self.note(f"~inserted {text_of(e.message)}"), everywhere=True)
        on(InboxDiscarded, lambda e: self.note(f"~discarded {text_of(e.message)}"), everywhere=True)
        on(
            InboxClaimed,
            lambda e: self.note(f"~claimed {text_of(e.message)} turn {e.turn}"),
            everywhere=True,
        )
        on(AgentAssistantStream, self._frame, everywhere=True)
        on(AgentError, lambda e: self.note(f"~agent/error {e.turn}.{e.step}"), everywhere=True)
        on(AgentAbandoned, lambda e: self.note("~agent/abandoned"), everywhere=True)

    def _frame(self, event: AgentAssistantStream) -> None:
        match event.frame:
            case StreamStart():
                self.note("~start")
            case StreamChunkFrame(index=index):
                self.note(f"~chunk {index}")
            case frame:
                outcome = frame.outcome
                word = "abandoned"
                if isinstance(outcome, Committed):
                    word = outcome.event_type.removeprefix("assistant/")
                self.note(f"~end {frame.index} {word}")

    def _turn_events(self) -> None:
        async def assemble(
            event: SystemPromptAssemble, next_: Next[PromptAssembly]
        ) -> PromptAssembly:
            self.note("~assemble")
            return await next_()

        async def pre_step(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            batch = " ".join(text_of(message) for message in event.messages)
            owed = " owed" if event.request_owed else ""
            self.note(f"~pre-step [{batch}] {event.turn}.{event.step}{owed}")
            return await next_()

        async def request(event: AgentRequest, next_: Next[LlmCallConfig]) -> LlmCallConfig:
            self.note("~request")
            return await next_()

        async def failed(event: AgentRequestError, next_: Next[Retry | None]) -> Retry | None:
            self.note(f"~request-error {event.failure.code}")
            return await next_()

        async def stopping(event: TurnStopping) -> None:
            self.note("~turn-stopping")

        def stream(
            event: LlmStreamEvent, next_: Callable[[], AsyncIterator[StreamChunk]]
        ) -> AsyncIterator[StreamChunk]:
            self.note("~llm/stream")
            return next_()

        on = self.ctx.on
        on(SystemPromptAssemble, assemble, everywhere=True, prepend=True)
        on(PreStep, pre_step, everywhere=True, prepend=True)
        on(AgentRequest, request, everywhere=True, prepend=True)
        on(AgentRequestError, failed, everywhere=True, prepend=True)
        on(TurnStopping, stopping, everywhere=True, prepend=True)
        on(LlmStreamEvent, stream, everywhere=True, prepend=True)

    def _tool_events(self) -> None:
        async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            self.note(f"~pre {event.exec.call_id}")
            return await next_()

        async def execute(
            event: ToolsExecute, next_: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            self.note(f"~execute {event.exec.call_id}")
            return await next_()

        async def post(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
            self.note(f"~post {event.exec.call_id}")
            return await next_()

        on = self.ctx.on
        on(ToolsPreExecute, pre, everywhere=True, prepend=True)
        on(ToolsExecute, execute, everywhere=True, prepend=True)
        on(ToolsPostExecute, post, everywhere=True, prepend=True)
        on(ToolsResult, lambda e: self.note(f"~result {e.exec.call_id}"), everywhere=True)


def text_of(message: Message) -> str:
    """A message in one word: its text, `RC` for the runtime context."""
    return "RC" if isinstance(message.source, RuntimeContextSource) else message_text(message)


def line_of(event: SessionEvent) -> str:
    """A durable event in one line."""
    where = (
        f" replace {event.surface_op.start_seq}" if isinstance(event.surface_op, ReplaceOp) else ""
    )
    return f"{event.type}{_facts(event)}{where}"


def _facts(event: SessionEvent) -> str:
    match event.data:
        case TurnStart(turn=turn):
            return f" {turn}"
        case TurnEnd(turn=turn, reason=reason):
            return f" {turn} {reason.__struct_config__.tag}"
        case StepStart(turn=turn, step=step) | StepEnd(turn=turn, step=step):
            return f" {turn}.{step}"
        case InboxSpliced() as splice:
            return _splice_facts(splice)
        case UserMessageEvent(message=message):
            return f" {text_of(message)}"
        case AssistantMessageEvent(interrupted=True):
            return " interrupted"
        case ToolCallEvent(call_id=call_id):
            return f" {call_id}"
        case ToolResultEvent(message=message, error=error):
            code = "" if error is None else f" {error.code}"
            return f" {message.tool_call_id}{code}"
        case RequestHeaderEvent(reason=reason, starts_series=series):
            return f" {reason}{' series' if series else ''}"
        case _:
            return ""


def _splice_facts(splice: InboxSpliced) -> str:
    removed = f" -{splice.removed_count}" if splice.removed_count else ""
    inserted = "".join(f" +{text_of(message)}" for message in splice.inserted)
    outcome = "" if splice.outcome is None else f" {splice.outcome}"
    return f" {splice.target}@{splice.start}{removed}{inserted}{outcome}"


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
    import dsh_agent_loop

    model = ScriptedModel(*replies)
    quiet = {"include_harness_identity": False} if prompt is None else prompt
    async with Context() as root:
        parts: list[tuple[Plugin, object]] = [
            (SessionStore, None),
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
        if before is not None:
            before(root)
        await root.settled()
        root.llm.register_adapter(["test"], model)
        stack = LoopStack(root, model, Recorder(root))
        stack.handle = await root.agents.create(provider="test", model="m")
        stack.recorder.take()
        yield stack
