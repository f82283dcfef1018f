"""The chunks of a model's stream. Upstream: packages/llm/llm/src/types.ts.

Chunks are made once for every few characters: they hold no cycles, so the collector need not watch
them (`gc=False`), and nothing validates them on their way.
"""

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from typing_extensions import override

from dsh_brand import JsonObject, JsonValue, OpenUnion, Wire, from_json, is_blank
from dsh_llm.blocks import ContentBlock, ReasoningBlock, TextBlock
from dsh_llm.failures import LlmFailure
from dsh_llm.ids import CallId
from dsh_llm.sources import ReplayEnvelope

F = TypeVar("F", bound="FinishReason")


class TokenUsage(Wire, frozen=True):
    """What a call cost. The three input counts are disjoint; billed input is their sum."""

    input_tokens: int
    output_tokens: int
    total_tokens: int | None = None
    """Exact size of the whole call; absent when the provider's counts do not allow it."""
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    """A share of `output_tokens`, never added to a total."""

    @property
    def prompt_tokens(self) -> int:
        """The pressure of the request on the context window."""
        return self.input_tokens + (self.cache_read_tokens or 0) + (self.cache_write_tokens or 0)


class FinishReason(Wire, frozen=True, tag_field="kind"):
    """Why a stream ended; others join by `register_finish`."""

    @property
    def kind(self) -> str:
        """The tag that names this reason on the wire."""
        return str(self.__struct_config__.tag)


class StopFinish(FinishReason, frozen=True, tag="stop"):
    """The model was done."""


class ToolCallsFinish(FinishReason, frozen=True, tag="tool-calls"):
    """The model waits for the results of its calls."""


class MaxTokensFinish(FinishReason, frozen=True, tag="max-tokens"):
    """The output limit cut the answer off."""


class AbortedFinish(FinishReason, frozen=True, tag="aborted"):
    """The caller asked to stop."""

    failure: LlmFailure


class ErrorFinish(FinishReason, frozen=True, tag="error"):
    """The call failed."""

    failure: LlmFailure


class OpaqueFinish(FinishReason, frozen=True, tag=False):
    """A reason that nobody registered, kept whole."""

    @property
    @override
    def kind(self) -> str:
        """The unregistered tag; empty if the object has none."""
        tag = None if self.extra is None else self.extra.get("kind")
        return tag if isinstance(tag, str) else ""


_FINISHES = OpenUnion(FinishReason, OpaqueFinish)


def register_finish(cls: type[F]) -> type[F]:
    """Teach the wire a finish reason, by its tag; usable as a decorator."""
    return _FINISHES.register(cls)


for _reason in (StopFinish, ToolCallsFinish, MaxTokensFinish, AbortedFinish, ErrorFinish):
    _FINISHES.register(_reason)

if TYPE_CHECKING:  # as `ContentBlock`: an open union for the checker, the core tags for msgspec
    AnyFinish: TypeAlias = FinishReason
else:
    AnyFinish = StopFinish | ToolCallsFinish | MaxTokensFinish | AbortedFinish | ErrorFinish


class Chunk(Wire, frozen=True, tag_field="type", gc=False):
    """Base of the chunks. The union is closed: nothing registers a chunk."""


class BlockStart(Chunk, frozen=True, tag="block-start", gc=False):
    """A block opens; indexes are given out in first-seen order."""

    index: int
    block_type: str


class TextDelta(Chunk, frozen=True, tag="text-delta", gc=False):
    """More text of a text block."""

    index: int
    text: str


class ReasoningDelta(Chunk, frozen=True, tag="reasoning-delta", gc=False):
    """More text of a reasoning block."""

    index: int
    text: str


class ToolCallDelta(Chunk, frozen=True, tag="tool-call-delta", gc=False, kw_only=True):
    """More of a tool call: its name once known, and a fragment of its arguments."""

    index: int
    id: CallId
    name: str | None = None
    arguments_delta: str


class BlockEnd(Chunk, frozen=True, tag="block-end", gc=False):
    """A block is complete; what it holds is authoritative."""

    index: int
    block: ContentBlock


class UsageChunk(Chunk, frozen=True, tag="usage", gc=False):
    """What the call cost; at most once, before the finish."""

    usage: TokenUsage


class FinishChunk(Chunk, frozen=True, tag="finish", gc=False):
    """The end of the stream; nothing follows."""

    reason: AnyFinish
    replay_state: ReplayEnvelope | None = None


class OpaqueChunk(Chunk, frozen=True, tag=False, gc=False):
    """A stored chunk of a type that this build does not know; no stream carries one."""

    @property
    def raw(self) -> JsonObject | None:
        """The JSON object as it was read."""
        return self.extra


StreamChunk: TypeAlias = (
    BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd | UsageChunk | FinishChunk
)
"""What a stream carries."""

_CHUNKS = OpenUnion(Chunk, OpaqueChunk)
for _chunk in (
    BlockStart,
    TextDelta,
    ReasoningDelta,
    ToolCallDelta,
    BlockEnd,
    UsageChunk,
    FinishChunk,
):
    _CHUNKS.register(_chunk)

if TYPE_CHECKING:  # msgspec needs the tags; a stored record may hold an unknown one besides
    StoredChunk: TypeAlias = StreamChunk | OpaqueChunk
else:
    StoredChunk = StreamChunk


def chunk_from_json(value: JsonValue) -> StreamChunk:
    """Read a chunk.

    Raises:
        ValueError: Not a chunk, or of an unknown type; the message names the path.
    """
    chunk = from_json(Chunk, value)
    if not isinstance(chunk, StreamChunk):
        raise ValueError(f"no chunk of a known type: {value!r:.120}")
    return chunk


def is_token_delta(chunk: Chunk) -> bool:
    """Whether a chunk brings something of the answer: text, or a part of a call."""
    if isinstance(chunk, TextDelta | ReasoningDelta):
        return chunk.text != ""
    if isinstance(chunk, ToolCallDelta):
        return chunk.arguments_delta != "" or chunk.name is not None
    return False


def is_visible_chunk(chunk: Chunk) -> bool:
    """Whether a chunk shows something to a person: text or reasoning, or a block of another kind.

    A tool call is not visible: what is shown of it comes from its execution.
    """
    match chunk:
        case TextDelta(text=text) | ReasoningDelta(text=text):
            return not is_blank(text)
        case BlockEnd(block=TextBlock(text=text) | ReasoningBlock(text=text)):
            return not is_blank(text)
        case BlockEnd(block=block):
            return block.type != "tool-call"
        case BlockStart(block_type=kind):
            return kind not in ("text", "reasoning", "tool-call")
        case _:
            return False


def chunk_has_visible_text(chunk: Chunk) -> bool:
    """Whether a chunk shows text of the answer itself."""
    match chunk:
        case TextDelta(text=text) | BlockEnd(block=TextBlock(text=text)):
            return not is_blank(text)
        case _:
            return False
