"""What the `bash` tool returns, and how a model reads it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

from dsh_tools import ToolExecutionResult, ToolSuccess
from dsh_tools.presentation import ResultView, TerminalResult

from . import texts
from .sandbox import Confinement, SandboxPolicy
from .types import Finished


class StreamValue(msgspec.Struct, frozen=True, rename="camel"):
    """The end of one stream."""

    text: str
    truncated: bool
    spill_path: str | None = None
    """Of the whole stream, where it was saved."""


class SandboxValue(msgspec.Struct, frozen=True, rename="camel"):
    """How the command was confined."""

    mode: Literal["read-only", "workspace-write", "danger-full-access"]
    enforcement: Literal["full", "partial"]
    denied: bool
    escalatable: bool


class ForegroundValue(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A command that ran to its end."""

    kind: Literal["foreground"]
    exit_code: int | None
    signal: str | None
    timed_out: bool
    aborted: bool
    timeout_ms: int
    stdout: StreamValue
    stderr: StreamValue
    held_open: bool
    survivors: bool
    sandbox: SandboxValue | None = None


class BackgroundValue(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A command that goes on as a job."""

    kind: Literal["background"]
    job_id: str


BashValue: TypeAlias = ForegroundValue | BackgroundValue


def foreground_value(end: Finished, timeout_ms: int, sandbox: SandboxValue | None) -> BashValue:
    """The value of a command."""
    return ForegroundValue(
        kind="foreground",
        exit_code=end.status.code,
        signal=end.status.signal,
        timed_out=end.timed_out,
        aborted=end.aborted,
        timeout_ms=timeout_ms,
        stdout=_stream(end.stdout, end.stdout_lossy, end.stdout_file),
        stderr=_stream(end.stderr, end.stderr_lossy, end.stderr_file),
        held_open=end.held_open,
        survivors=end.survivors,
        sandbox=sandbox,
    )


def sandbox_value(
    policy: SandboxPolicy, confinement: Confinement, end: Finished, *, escalatable: bool
) -> SandboxValue:
    """How a command was confined, and whether that got in its way."""
    denied = confinement.denied(end)
    wider = escalatable and policy.mode != "danger-full-access"
    return SandboxValue(policy.mode, confinement.enforcement, denied, wider)


def _stream(data: bytes, lossy: bool, file: Path | None) -> StreamValue:
    path = None if file is None else str(file)
    return StreamValue(data.decode("utf-8", "replace"), lossy, path)


def streams_text(stdout: str, stderr: str) -> str:
    """Both streams as one text; empty if both are."""
    parts = [stdout.rstrip("\n")] if stdout else []
    if stderr:
        parts += [texts.STDERR, stderr.rstrip("\n")]
    return "\n".join(parts)


def render_bash(arguments: object, value: Mapping[str, Any]) -> str:
    """Output first, then what is to be known about the end."""
    if value["kind"] == "background":
        return texts.STARTED.format(job_id=value["jobId"])
    stdout, stderr = value["stdout"], value["stderr"]
    lines = [streams_text(stdout["text"], stderr["text"]) or texts.NO_OUTPUT]
    for stream in (stdout, stderr):
        if stream["truncated"]:
            place = stream.get("spillPath") or texts.UNAVAILABLE
            lines.append(texts.TRUNCATED.format(place=place))
    return "\n".join([*lines, *_markers(value)])


def _markers(value: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    if value["heldOpen"]:
        lines.append(texts.HELD_OPEN)
    if value["survivors"]:
        lines.append(texts.SURVIVORS)
    sandbox = value.get("sandbox")
    if sandbox is not None and sandbox["denied"]:
        lines.append(texts.DENIED.format(mode=sandbox["mode"]))
        if sandbox["escalatable"]:
            lines.append(texts.ESCALATE)
    if value["timedOut"]:
        lines.append(texts.TIMED_OUT.format(timeout_ms=value["timeoutMs"]))
    if value["signal"] is not None:
        lines.append(texts.KILLED.format(signal=value["signal"]))
    elif value["exitCode"]:
        lines.append(texts.EXIT_CODE.format(code=value["exitCode"]))
    return lines


def present_bash(arguments: object, result: ToolExecutionResult) -> ResultView | None:
    """The result as a terminal."""
    value = result.value if isinstance(result, ToolSuccess) else None
    if not isinstance(value, Mapping) or value.get("kind") != "foreground":
        return None
    known: Mapping[str, Any] = value
    output = streams_text(known["stdout"]["text"], known["stderr"]["text"])
    return TerminalResult(output=output, exit_code=known["exitCode"], signal=known["signal"])
