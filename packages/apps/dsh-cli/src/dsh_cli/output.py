"""What a turn shows: text for people, or one JSON object per line for programs."""

import sys
from pathlib import Path
from typing import Final, Protocol, TextIO

import click
import msgspec
from typing_extensions import override

from dsh_agent import AgentAssistantStream, StreamChunkFrame, StreamEnd
from dsh_brand import JsonValue, encode_json, to_json
from dsh_llm import ReasoningDelta, TextDelta, TokenUsage, message_text
from dsh_llm_retry import LlmRetry
from dsh_session import (
    AssistantMessageEvent,
    SessionEvent,
    ToolCallEvent,
    ToolResultEvent,
    UserMessageEvent,
    event_to_json,
)

JSON_VERSION: Final = 1
"""Version of the lines of `--json`; a change that breaks readers raises it."""

_ARGUMENTS_SHOWN: Final = 120
_RESULT_SHOWN: Final = 100

_COMMANDS: Final = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (
        *(code for code in range(0x20) if code not in b"\t\n"),
        *range(0x7F, 0xA0),
        *range(0x202A, 0x202F),  # these turn the order of what follows around
        *range(0x2066, 0x206A),
    )
}


class Output(Protocol):
    """Receives a turn while it happens; both kinds write at once and never buffer."""

    def session(self, session_id: str, path: Path | None, *, resumed: bool) -> None:
        """The session is open; `path` is where its log lies."""
        ...

    def frame(self, event: AgentAssistantStream) -> None:
        """A live frame of a model attempt."""
        ...

    def event(self, event: SessionEvent) -> None:
        """A committed event of the session."""
        ...

    def failure(self, message: str, code: str) -> None:
        """The turn or the command failed."""
        ...

    def end(self, reason: str, usage: TokenUsage | None) -> None:
        """The turn is over."""
        ...


class TextOutput(Output):
    r"""Answer text on standard output; everything else, shortened, on standard error.

    A terminal obeys control characters, and a model or a tool may have them from anywhere: on one
    they are shown as `\x1b`. An answer that goes to a file or a pipe is exact.
    """

    def __init__(self, out: TextIO | None = None, notes: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._notes = notes or sys.stderr
        self._fresh_line = True
        self._thinking = False

    @override
    def session(self, session_id: str, path: Path | None, *, resumed: bool) -> None:
        word = "resumed" if resumed else "session"
        self._note(f"{word} {session_id}" + (f"\nlog {path}" if path else ""))

    @override
    def frame(self, event: AgentAssistantStream) -> None:
        frame = event.frame
        if isinstance(frame, StreamChunkFrame):
            if isinstance(frame.chunk, TextDelta):
                self._end_thinking()
                self._write(self._answer(frame.chunk.text))
            elif isinstance(frame.chunk, ReasoningDelta):
                self._thinking = True
                click.secho(visible(frame.chunk.text), dim=True, nl=False, file=self._notes)
        elif isinstance(frame, StreamEnd):
            self._end_thinking()
            self._end_line()

    @override
    def event(self, event: SessionEvent) -> None:
        match event.data:
            case ToolCallEvent(name=name, arguments=arguments):
                self._note(f"→ {name} {_shortened(arguments, _ARGUMENTS_SHOWN)}")
            case ToolResultEvent(message=message, error=error):
                mark = "✗" if message.is_error else "✓"
                code = f" {error.code}" if error is not None else ""
                text = message_text(message).strip().splitlines() or [""]
                self._note(f"{mark}{code} {_shortened(text[0], _RESULT_SHOWN)}")
            case LlmRetry(failure=failure, retry=retry, delay_ms=delay_ms):
                self._note(
                    f"retry {retry} in {delay_ms / 1000:.1f} s: {failure.message} [{failure.code}]"
                )
            case _:
                pass  # the answer itself has been streamed; the rest is for the log

    @override
    def failure(self, message: str, code: str) -> None:
        self._end_line()
        click.secho(visible(f"dsh: {message} [{code}]"), fg="red", file=self._notes)

    @override
    def end(self, reason: str, usage: TokenUsage | None) -> None:
        self._end_line()
        tokens = f", {usage.input_tokens} tokens in, {usage.output_tokens} out" if usage else ""
        self._note(f"{reason}{tokens}")

    def _answer(self, text: str) -> str:
        return visible(text) if self._out.isatty() else text

    def _write(self, text: str) -> None:
        self._out.write(text)
        self._out.flush()
        if text:
            self._fresh_line = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._fresh_line:
            self._write("\n")

    def _end_thinking(self) -> None:
        if self._thinking:
            self._thinking = False
            click.echo(file=self._notes)

    def _note(self, text: str) -> None:
        self._end_line()
        click.secho(visible(text), dim=True, file=self._notes)


class JsonOutput(Output):
    """One JSON object per line on standard output, each with the version `v` and an `event`."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout

    @override
    def session(self, session_id: str, path: Path | None, *, resumed: bool) -> None:
        self._line("session", id=session_id, path=str(path) if path else None, resumed=resumed)

    @override
    def frame(self, event: AgentAssistantStream) -> None:
        frame = event.frame
        if not isinstance(frame, StreamChunkFrame):
            return
        if isinstance(frame.chunk, TextDelta):
            self._line("text-delta", text=frame.chunk.text)
        elif isinstance(frame.chunk, ReasoningDelta):
            self._line("reasoning-delta", text=frame.chunk.text)

    @override
    def event(self, event: SessionEvent) -> None:
        match event.data:
            case (
                UserMessageEvent()
                | AssistantMessageEvent()
                | ToolCallEvent()
                | ToolResultEvent()
                | LlmRetry()
            ):
                data = event_to_json(event)["data"]
                if isinstance(data, dict):
                    data.pop("stream", None)  # its deltas were lines of their own
                self._line(event.type, seq=event.seq, time=event.time, data=data)
            case _:
                pass  # the log has them; these lines are for following a turn

    @override
    def failure(self, message: str, code: str) -> None:
        self._line("failure", message=message, code=code)

    @override
    def end(self, reason: str, usage: TokenUsage | None) -> None:
        self._line("end", reason=reason, usage=to_json(usage) if usage else None)

    def _line(self, event: str, **facts: JsonValue) -> None:
        line: dict[str, JsonValue] = {"v": JSON_VERSION, "event": event, **facts}
        self._out.write(encode_json(line).decode() + "\n")
        self._out.flush()


def visible(text: str) -> str:
    r"""The text with what a terminal would obey written out: `\x1b` for an escape."""
    return text.translate(_COMMANDS)


def _shortened(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def added(total: TokenUsage | None, usage: TokenUsage) -> TokenUsage:
    """The sum of two usages, as far as both are known."""
    if total is None:
        return usage
    return msgspec.structs.replace(
        usage,
        input_tokens=total.input_tokens + usage.input_tokens,
        output_tokens=total.output_tokens + usage.output_tokens,
        cache_read_tokens=_sum(total.cache_read_tokens, usage.cache_read_tokens),
        cache_write_tokens=_sum(total.cache_write_tokens, usage.cache_write_tokens),
        reasoning_tokens=_sum(total.reasoning_tokens, usage.reasoning_tokens),
        total_tokens=_sum(total.total_tokens, usage.total_tokens),
    )


def _sum(left: int | None, right: int | None) -> int | None:
    return right if left is None else left if right is None else left + right
