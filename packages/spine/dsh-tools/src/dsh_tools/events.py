"""Events of the tool layer.

Those with an `exec` reach listeners of the calling agent, of its ancestors, and unscoped ones.
"""

from typing import ClassVar

from dsh_cordis import Emit, Waterfall

from .execution import ToolRunContext
from .types import PostToolDecision, PreToolDecision, ToolExecutionResult


class ToolsPreExecute(Waterfall[PreToolDecision], frozen=True):
    """A call is about to run: allow it, deny it, or ask a person. The default allows."""

    name: ClassVar[str] = "tools/pre-execute"
    scoped: ClassVar[bool] = True
    exec: ToolRunContext
    """The record of the call."""


class ToolsExecute(Waterfall[ToolExecutionResult], frozen=True):
    """Around the body: time it, retry it by calling `next()` again, answer for it."""

    name: ClassVar[str] = "tools/execute"
    scoped: ClassVar[bool] = True
    exec: ToolRunContext
    """The record of the call."""


class ToolsPostExecute(Waterfall[PostToolDecision], frozen=True):
    """A call has an outcome: accept it (the default), replace content or value, block it."""

    name: ClassVar[str] = "tools/post-execute"
    scoped: ClassVar[bool] = True
    exec: ToolRunContext
    """The record of the call."""
    result: ToolExecutionResult
    """The outcome so far."""


class ToolsResult(Emit, frozen=True):
    """A call is over. Record and result are frozen."""

    name: ClassVar[str] = "tools/result"
    scoped: ClassVar[bool] = True
    exec: ToolRunContext
    """The record of the call."""
    result: ToolExecutionResult
    """The outcome, as the caller gets it."""


class ToolsChange(Emit, frozen=True):
    """Tools or restrictions came or went. A raising listener refuses a registration."""

    name: ClassVar[str] = "tools/change"
    vetoing: ClassVar[bool] = True
