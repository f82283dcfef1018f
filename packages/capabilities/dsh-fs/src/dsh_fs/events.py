"""Events of the file tools. Using `ctx.fs` directly emits none of them."""

from typing import ClassVar

from dsh_cordis import Emit, Waterfall

from .types import EditExpectation, FsTarget, FsVersion, WriteExpectation


class FsWriteIntent(Waterfall[WriteExpectation | None], frozen=True):
    """A tool is about to write a file: what must hold? The default, `None`, writes in any case."""

    name: ClassVar[str] = "fs/write-intent"
    target: FsTarget
    """The file."""
    actor: object | None
    """The acting agent's session, by identity; `None` for a call without agent."""


class FsEditIntent(Waterfall[EditExpectation | None], frozen=True):
    """A tool is about to edit a file: what must hold? The default, `None`, edits in any case."""

    name: ClassVar[str] = "fs/edit-intent"
    target: FsTarget
    """The file."""
    actor: object | None
    """The acting agent's session, by identity; `None` for a call without agent."""


class FsObserved(Emit, frozen=True):
    """A tool has read, written or edited a file. A raising listener fails the tool's call."""

    name: ClassVar[str] = "fs/observed"
    vetoing: ClassVar[bool] = True
    target: FsTarget
    """The file."""
    version: FsVersion | None
    """`None`: the file is known to be absent."""
    actor: object | None
    """The acting agent's session, by identity; `None` for a call without agent."""
