"""Writes down what happens to agents, in order, one short line an event."""

from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Self

from dsh_agent import (
    AgentAbandoned,
    AgentAssistantStream,
    AgentCreated,
    AgentDisposed,
    AgentError,
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
from dsh_cordis import Context, Next
from dsh_llm import (
    LlmCallConfig,
    LlmStreamEvent,
    Message,
    RuntimeContextSource,
    StreamChunk,
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
    StepEnd,
    StepStart,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)
from dsh_system_prompt import PromptAssembly, SystemPromptAssemble
from dsh_tools import (
    PostToolDecision,
    PreToolDecision,
    ToolExecutionResult,
    ToolsExecute,
    ToolsPostExecute,
    ToolsPreExecute,
    ToolsResult,
)


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
