"""What a process is started with, and what is known of its end.

Upstream: packages/shell/subprocess/src/types.ts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, TypeAlias

import msgspec

from dsh_llm import AbortSignal

MAX_GRACE_MS: Final = 2_147_483_647


@dataclass(frozen=True)
class Spill:
    """Where a collected stream goes as a whole once it outgrows its collector."""

    directory: Path
    """Real path; made with mode 0700 if it is missing. Through a link nothing is saved."""
    max_bytes: int
    """A stream that exceeds it leaves no file at all."""
    label: str = "output"
    """Part of the file's name; reduced to safe characters."""


@dataclass(frozen=True)
class Collect:
    """Keep the last bytes of a stream in memory."""

    max_bytes: int
    spill: Spill | None = None
    ends_beyond: bool = False
    """Terminate the process once the stream outgrows the collector."""


Input: TypeAlias = Literal["ignore", "pipe"] | bytes
"""Nothing, a pipe for the caller, or these bytes and then the end."""

Output: TypeAlias = Literal["pipe", "inherit"] | Collect
"""A pipe for the caller, the host's own stream, or a collector."""


@dataclass(frozen=True, kw_only=True)
class SpawnSpec:
    """Everything about a process to start. There are no defaults for its streams."""

    argv: Sequence[str]
    """Program and arguments; no shell looks at them."""
    cwd: str
    stdin: Input
    stdout: Output
    stderr: Output
    grace_ms: int
    """Between SIGTERM and SIGKILL, and for draining what a descendant holds open."""
    signal: AbortSignal | None = None
    """Terminates the process; aborted before the start, nothing starts."""
    env: Mapping[str, str | None] = field(default_factory=dict)
    """On top of the filtered environment of the host; `None` removes."""


class ExitStatus(msgspec.Struct, frozen=True):
    """How the leader of a process group ended: one of both is set."""

    code: int | None = None
    signal: str | None = None
    """Such as `SIGTERM`."""


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """A command that was run to its end."""

    status: ExitStatus
    stdout: bytes
    """The last bytes of it."""
    stderr: bytes
    stdout_lossy: bool
    """True if earlier bytes were dropped."""
    stderr_lossy: bool
    stdout_file: Path | None
    """Holds the whole stream, where it was spilled."""
    stderr_file: Path | None
    timed_out: bool
    """The time limit ended it; never together with `aborted`."""
    aborted: bool
    """The signal ended it."""
    held_open: bool
    """A process that it left behind still holds its output; what came later is not here."""
    survivors: bool
    """Members of its group outlived SIGKILL for as long as was waited."""

    @property
    def exit_code(self) -> int | None:
        """Of the leader; `None` if a signal ended it."""
        return self.status.code
