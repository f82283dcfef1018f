"""What a call to a model asks for. Upstream: packages/llm/llm/src/types.ts."""

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from dsh_brand import FrozenDict, JsonObject, Wire, freeze_object
from dsh_llm._identity import IdentityMemory
from dsh_llm.growing import LoggedMessages
from dsh_llm.ids import MessageId, ReasoningEffortId
from dsh_llm.messages import Message, RequestMessage, RequestUserInput
from dsh_llm.signal import AbortSignal

T = TypeVar("T")

Purpose: TypeAlias = Literal["compaction", "session-title"]
"""Why a call besides the agent's own is made."""


class ToolSchema(Wire, frozen=True):
    """A tool as the model sees it; passed through with the order of its keys."""

    name: str
    description: str
    parameters: JsonObject
    """JSON Schema of an object."""
    defer_loading: bool | None = None
    """`True`: the provider may load the definition when it is first used."""

    def __post_init__(self) -> None:
        if type(self.parameters) is not FrozenDict:
            msgspec.structs.force_setattr(self, "parameters", freeze_object(self.parameters))


class LlmCallConfig(Wire, frozen=True):
    """Which model answers, and how. What is absent is left to the adapter."""

    provider: str
    model: str
    reasoning_effort: ReasoningEffortId | str | None = None
    temperature: int | float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        temperature = self.temperature
        if isinstance(temperature, float) and temperature.is_integer():
            msgspec.structs.force_setattr(self, "temperature", int(temperature))
        if self.stop is not None and type(self.stop) is not tuple:
            msgspec.structs.force_setattr(self, "stop", tuple(self.stop))


class AdapterDefaults(Wire, frozen=True):
    """Marks the values of a call config that the adapter supplied, not the caller."""

    reasoning_effort: bool | None = None
    max_tokens: bool | None = None

    def __post_init__(self) -> None:
        if self.reasoning_effort is False or self.max_tokens is False:
            raise ValueError("a mark is True or absent: leave out what the caller supplied")


class ToolUpdate(Wire, frozen=True):
    """What one developer message added."""

    message_id: MessageId
    additions: tuple[ToolSchema, ...]


class ToolHistory(Wire, frozen=True):
    """The declarations in force when the current series of requests began, and their changes."""

    tools: tuple[ToolSchema, ...]
    updates: tuple[ToolUpdate, ...] = ()


class GenerateOptions(msgspec.Struct, frozen=True, kw_only=True, weakref=True):
    """One request. Frozen: a changed request is a copy (`msgspec.structs.replace`).

    Nothing derived from `session_id` goes over the wire.
    """

    provider: str
    model: str
    messages: Sequence[RequestMessage]
    """Oldest first; a view of a `RequestLog` saves looking at a long history again."""
    reasoning_effort: ReasoningEffortId | str | None = None
    system: str | None = None
    """A prompt for hand-built calls; the loop's prompt is a system message."""
    tools: Sequence[ToolSchema] | None = None
    tool_history: ToolHistory | None = None
    temperature: int | float | None = None
    max_tokens: int | None = None
    stop: Sequence[str] | None = None
    signal: AbortSignal | None = None
    session_id: str | None = None
    purpose: Purpose | None = None

    def __post_init__(self) -> None:
        if type(self.messages) not in (tuple, LoggedMessages):
            msgspec.structs.force_setattr(self, "messages", _all_of(_MESSAGES, self.messages))
        if self.tools is not None and type(self.tools) is not tuple:
            msgspec.structs.force_setattr(self, "tools", _all_of(_TOOLS, self.tools))
        if self.stop is not None and type(self.stop) is not tuple:
            msgspec.structs.force_setattr(self, "stop", _all_of(_STOPS, self.stop))


class _Parts(NamedTuple):
    """What a list in a request is made of."""

    field: str
    kinds: tuple[type, ...]
    advice: str


_MESSAGES: Final = _Parts(
    "messages",
    (Message, RequestUserInput),
    "make messages with create_user_message() and its siblings, or freeze_message(mapping)",
)
_TOOLS: Final = _Parts("tools", (ToolSchema,), "make each a ToolSchema")
_STOPS: Final = _Parts("stop", (str,), "give a list of strings")


def _all_of(parts: _Parts, values: Iterable[T]) -> tuple[T, ...]:
    """A copy of what somebody wrote by hand, so that a slip is told where it was made.

    Raises:
        TypeError: A single value instead of a list, or a list of something else.
    """
    # A string would be taken for a list of its characters.
    single = isinstance(values, str | msgspec.Struct)
    copied = () if single else tuple(values)
    kinds: Iterable[type] = {type(values)} if single else {*map(type, copied)}
    for kind in kinds:
        if single or not issubclass(kind, parts.kinds):
            raise TypeError(f"`{parts.field}` of a request holds {kind.__name__}: {parts.advice}")
    return copied


class _CallFields(Protocol):
    """What a call config and a request have in common."""

    @property
    def provider(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def reasoning_effort(self) -> str | None: ...
    @property
    def temperature(self) -> float | None: ...
    @property
    def max_tokens(self) -> int | None: ...
    @property
    def stop(self) -> Sequence[str] | None: ...


def call_config_equals(left: _CallFields, right: _CallFields) -> bool:
    """Whether two configs ask for the same; each may also be a request.

    An absent `stop` differs from an empty one.
    """
    return (
        left.provider == right.provider
        and left.model == right.model
        and left.reasoning_effort == right.reasoning_effort
        and left.temperature == right.temperature
        and left.max_tokens == right.max_tokens
        and (None if left.stop is None else tuple(left.stop))
        == (None if right.stop is None else tuple(right.stop))
    )


_loop_requests: Final[IdentityMemory[GenerateOptions, bool]] = IdentityMemory()


def mark_agent_loop_request(options: GenerateOptions) -> None:
    """Mark this very object as a request of the agent loop; keeps nothing alive."""
    _loop_requests.set(options, True)


def is_agent_loop_request(options: GenerateOptions) -> bool:
    """Whether this very object was marked; an equal copy is not."""
    return _loop_requests.get(options) is not None
