"""One turn of one agent, shown while it happens."""

import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import anyio

from dsh_agent import Agent, AgentAssistantStream, UserCancel
from dsh_cli.errors import ExitCode
from dsh_cli.output import Output, added
from dsh_llm import TokenUsage, UsageChunk, last_assistant_stream_chunk
from dsh_session import (
    Aborted,
    AssistantAttempt,
    AssistantMessageEvent,
    Completed,
    ErrorEnd,
    MaxTokens,
    SessionEvent,
    SessionEventAppended,
    TurnEnd,
    TurnEndReason,
)

T = TypeVar("T")


class TurnWatch:
    """What the turns of one run came to; fed by the session's events."""

    def __init__(self, output: Output, agent: Agent) -> None:
        self.reason: TurnEndReason | None = None
        """How the last turn ended."""
        self.usage: TokenUsage | None = None
        """Tokens of all attempts, failed ones too."""
        self.interrupted = False
        self._output = output
        self._agent = agent

    def interrupt(self) -> None:
        """Cancel the turn; what waits in the inbox stays."""
        self.interrupted = True
        self._agent.cancel(UserCancel(), keep_inbox=True)

    def frame(self, event: AgentAssistantStream) -> None:
        """Show a live frame."""
        self._show(self._output.frame, event)

    def event(self, appended: SessionEventAppended) -> None:
        """Note and show a committed event."""
        event: SessionEvent = appended.event
        match event.data:
            case AssistantMessageEvent(usage=TokenUsage() as usage):
                self.usage = added(self.usage, usage)
            case AssistantMessageEvent(stream=stream) | AssistantAttempt(stream=stream):
                chunk = last_assistant_stream_chunk(stream, "usage")
                if isinstance(chunk, UsageChunk):
                    self.usage = added(self.usage, chunk.usage)
            case TurnEnd(reason=reason):
                self.reason = reason
            case _:
                pass  # no figure of the run depends on it
        self._show(self._output.event, event)

    def _show(self, show: Callable[[T], None], what: T) -> None:
        """Take a reader of the output that went away, as `head` does, for an interrupt."""
        try:
            show(what)
        except BrokenPipeError:
            # Nobody reads any more: what follows, the interpreter's own flush too, goes nowhere.
            with Path(os.devnull).open("wb") as nowhere:
                os.dup2(nowhere.fileno(), sys.stdout.fileno())
            self.interrupt()

    def conclude(self) -> ExitCode:
        """Show how it ended and name the exit code."""
        code = self._conclude()
        kind = "none" if self.reason is None else _kind(self.reason)
        self._output.end(kind, self.usage)
        return code

    def _conclude(self) -> ExitCode:
        match self.reason:
            case Completed() | MaxTokens():
                return ExitCode.DONE
            case ErrorEnd(error=error):
                self._output.failure(error.message, error.code)
                return ExitCode.TURN_FAILED
            case Aborted() if self.interrupted:
                return ExitCode.INTERRUPTED
            case None:
                self._output.failure("no turn was run", "NO_TURN")
                return ExitCode.TURN_FAILED
            case _:
                self._output.failure(f"the turn ended as {_kind(self.reason)!r}", "TURN_ENDED")
                return ExitCode.TURN_FAILED


def _kind(reason: TurnEndReason) -> str:
    tag = reason.__struct_config__.tag
    return tag if isinstance(tag, str) else "unknown"


async def run_turn(agent: Agent, prompt: str, output: Output) -> ExitCode:
    """Send `prompt`, show what happens until the agent is idle, and name the exit code.

    The first interrupt cancels the turn and waits until the log is closed; a second one, while
    that wait lasts, ends the process's work at once and leaves a log that resumes.
    """
    watch = TurnWatch(output, agent)
    frames = agent.ctx.on(AgentAssistantStream, watch.frame)
    events = agent.ctx.on(SessionEventAppended, watch.event)
    try:
        async with _interrupts(watch.interrupt):
            agent.followup(prompt)
            await agent.when_idle()
    finally:
        frames()
        events()
    return watch.conclude()


@asynccontextmanager
async def _interrupts(first: Callable[[], None]) -> AsyncIterator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_watch_signals, first, tasks.cancel_scope)
        yield
        tasks.cancel_scope.cancel()


async def _watch_signals(first: Callable[[], None], scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        seen = 0
        async for _ in signals:
            seen += 1
            if seen == 1:
                first()
            else:
                scope.cancel()
                return
