"""What flows through a tool call: definition, record, results, decisions.

Upstream: packages/tools/tools/src/types.ts.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeAlias

import msgspec

from dsh_agent import Agent
from dsh_brand import Json, JsonValue
from dsh_llm import AbortSignal, CallId, ContentBlock, Message
from dsh_session import ToolErrorInfo as ToolErrorInfo  # part of this vocabulary

from ._immediate import is_immediate
from .execution import ToolRunContext, ToolToken
from .presentation import CallView, ResultView
from .validation import Checked

Content: TypeAlias = str | Sequence[ContentBlock]
"""Content as policies and renderers give it; a string is one text block."""

CancelMode: TypeAlias = Literal["scope", "cooperative"]


# ---- results --------------------------------------------------------------------------------


class ToolFault(msgspec.Struct, frozen=True, kw_only=True):
    """Why a call failed."""

    message: str
    info: ToolErrorInfo | None = None
    """For programs; only errors with a code have it."""


class ToolSuccess(msgspec.Struct, frozen=True, kw_only=True):
    """A call that gave a value."""

    is_error: ClassVar[bool] = False
    value: JsonValue
    content: tuple[ContentBlock, ...]
    """What the model sees."""
    meta: Json | msgspec.UnsetType = msgspec.UNSET
    """For cards in user interfaces; stays in the log."""
    additional_contexts: tuple[Message, ...] = ()
    """User messages that the model gets with the next step."""
    concludes_turn: bool = False


class ToolFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A call that gave an error."""

    is_error: ClassVar[bool] = True
    error: ToolFault
    content: tuple[ContentBlock, ...]
    meta: Json | msgspec.UnsetType = msgspec.UNSET
    additional_contexts: tuple[Message, ...] = ()


ToolExecutionResult: TypeAlias = ToolSuccess | ToolFailure


# ---- definition -----------------------------------------------------------------------------

Arguments: TypeAlias = Mapping[str, JsonValue]
ResultHook: TypeAlias = Callable[[ToolRunContext, ToolExecutionResult], Content | None]
"""Content in the place of what a result has, or `None` to leave it."""


@dataclass(frozen=True, eq=False)
class ToolOutput:
    """What a tool returns and how a model reads it."""

    schema: Mapping[str, JsonValue]
    """Of the value, in the subset; enforced on every call."""
    render: Callable[[Any, Any], Content]  # (arguments, value), as the schemas say
    """Content for the model. Pure."""
    presentation_meta: Callable[[Any, Any], JsonValue] | None = None  # as above
    """JSON for user interfaces, kept in the log. Pure."""

    @cached_property
    def _checked(self) -> Checked:
        return Checked(self.schema)


@dataclass(frozen=True, eq=False)
class ToolDefinition:
    """A tool. Registering borrows it; to change it, dispose the registration and register anew."""

    name: str
    description: str
    parameters: Mapping[str, JsonValue]
    """JSON Schema that the model sees. `execute` validates: it gets whatever the model sent."""
    output: ToolOutput
    execute: Callable[[Any, ToolRunContext], Awaitable[object]]  # frozen JSON, any kind
    _: KW_ONLY
    defer_loading: bool = False
    """Ask that a route load this definition into context later."""
    project_content: ResultHook | None = None
    """Content prepared during the execution, in the place of the rendered one."""
    finalize_content: ResultHook | None = None
    """The last word on content, once on every path."""
    timeout_ms: float | None = None
    """A declaration for the timeout policy; without that plugin it does nothing."""
    cancel: CancelMode = "cooperative"
    """`scope`: the body is cancelled when its signal aborts; else it watches `exec.signal`."""
    is_concurrency_safe: Callable[[Any], bool] | None = None  # frozen JSON, any kind
    """True if calls with these arguments may overlap with others."""
    present_call: Callable[[Any], CallView | None] | None = None  # arguments
    """Pure view of a call."""
    present_result: Callable[[Any, ToolExecutionResult], ResultView | None] | None = None
    """Pure view of a result."""

    @cached_property
    def _immediate(self) -> bool:
        return is_immediate(self.execute)


@dataclass(frozen=True, eq=False)
class ToolExecutionInput:
    """One call."""

    name: str
    arguments: object
    """JSON; raw text where the model's text was none."""
    call_id: CallId
    signal: AbortSignal
    _: KW_ONLY
    root_call_id: CallId | None = None
    """The model's call this one serves; itself by default."""
    agent: Agent | None = None
    parent: ToolToken | None = None
    """Of the enclosing transport call."""


# ---- decisions ------------------------------------------------------------------------------


class Allow(msgspec.Struct, frozen=True):
    """Let the call go on."""


class Deny(msgspec.Struct, frozen=True):
    """Refuse the call."""

    reason: str
    """What the model reads."""
    info: ToolErrorInfo | None = None


class Ask(msgspec.Struct, frozen=True):
    """Let a person decide."""

    reason: str | None = None


PreToolDecision: TypeAlias = Allow | Deny | Ask


class Accept(msgspec.Struct, frozen=True, kw_only=True):
    """Keep the result, or replace its content, or its value; never both."""

    content: Content | msgspec.UnsetType = msgspec.UNSET
    value: Json | msgspec.UnsetType = msgspec.UNSET
    """Validated and rendered anew; `None` is the value null."""
    additional_contexts: tuple[Message, ...] = ()


class Block(msgspec.Struct, frozen=True):
    """Turn the call into a failure whose content is `feedback`."""

    feedback: Content
    additional_contexts: tuple[Message, ...] = ()


PostToolDecision: TypeAlias = Accept | Block
