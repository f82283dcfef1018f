"""Folds a stream of chunks into blocks. Upstream: packages/llm/llm/src/assembler.ts."""

from collections.abc import Iterator

from dsh_brand import is_blank, pair_surrogates, replace
from dsh_llm import codes
from dsh_llm.blocks import Block, ReasoningBlock, TextBlock, ToolCallBlock
from dsh_llm.chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    FinishChunk,
    FinishReason,
    MaxTokensFinish,
    ReasoningDelta,
    StopFinish,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    UsageChunk,
)
from dsh_llm.failures import LlmError
from dsh_llm.ids import CallId
from dsh_llm.messages import Message, create_assistant_message
from dsh_llm.sources import ModelSource, ReplayEnvelope


class _Pieces:
    """Text that grows at its end and is joined when it is read."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[str] = []

    def add(self, text: str) -> None:
        self._parts.append(text)

    def joined(self) -> str:
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return pair_surrogates(self._parts[0]) if self._parts else ""


class _OpenBlock:
    """What is known of a block so far; `closed` is its end, which is authoritative."""

    __slots__ = ("arguments", "closed", "id", "kind", "name", "text")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.text = _Pieces()
        self.arguments = _Pieces()
        self.id = ""
        self.name = ""
        self.closed: Block | None = None

    def add_call(self, chunk: ToolCallDelta) -> None:
        self.id = chunk.id or self.id
        self.name = chunk.name or self.name
        self.arguments.add(chunk.arguments_delta)

    def is_call(self) -> bool:
        if self.closed is not None:
            return isinstance(self.closed, ToolCallBlock)
        return self.kind == "tool-call"

    def block(self, index: int) -> Block | None:
        """The block, or `None` if it is open and of a kind that cannot be put together."""
        if self.closed is not None:
            return self.closed
        match self.kind:
            case "text":
                return TextBlock(self.text.joined())
            case "reasoning":
                return ReasoningBlock(self.text.joined())
            case "tool-call":
                call_id = CallId(self.id or f"call-{index}")
                return ToolCallBlock(call_id, self.name, self.arguments.joined())
            case _:
                return None


class BlockAssembler:
    """Takes the chunks of one attempt and gives the blocks of its message.

    Everything may be read at any time and repeatedly; reading changes nothing.

    Attributes:
        usage: The usage that was reported last, `None` without one.
        finish: The finish in force; `StopFinish` as long as none was pushed.
    """

    __slots__ = ("_open", "_replay_state", "finish", "usage")

    def __init__(self) -> None:
        self._open: dict[int, _OpenBlock] = {}
        self._replay_state: ReplayEnvelope | None = None
        self.usage: TokenUsage | None = None
        self.finish: FinishReason = StopFinish()

    def push(self, chunk: Chunk) -> None:
        """Fold one chunk; one that this build does not know is ignored."""
        match chunk:
            case TextDelta(index=index, text=text):
                self._at(index, "text", text)
            case ReasoningDelta(index=index, text=text):
                self._at(index, "reasoning", text)
            case ToolCallDelta(index=index):
                block = self._block(index, "tool-call")
                if block.closed is None:
                    block.add_call(chunk)
            case BlockStart(index=index, block_type=kind):
                self._block(index, kind)
            case BlockEnd(index=index, block=ended):
                block = self._block(index, ended.type)
                if block.closed is None:
                    block.closed = ended
            case UsageChunk(usage=usage):
                self.usage = usage
            case FinishChunk(reason=reason, replay_state=state):
                self.finish = reason
                self._replay_state = state
            case _:
                pass

    def _block(self, index: int, kind: str) -> _OpenBlock:
        block = self._open.get(index)
        if block is None:
            block = self._open[index] = _OpenBlock(kind)
        return block

    def _at(self, index: int, kind: str, text: str) -> None:
        block = self._block(index, kind)
        if block.closed is None:
            block.text.add(text)

    def blocks(self) -> tuple[Block, ...]:
        """The blocks in the order in which their indexes were first seen.

        When the output limit cut the answer off, tool calls are left out: they may be incomplete.

        Raises:
            LlmError: A block of a kind that has no deltas is still open (`MALFORMED_RESPONSE`).
        """
        return tuple(self._kept())

    def _kept(self) -> Iterator[Block]:
        for index, entry in self._open.items():
            if self._drops(entry):
                continue
            block = entry.block(index)
            if block is None:
                raise LlmError(
                    f"block {index} of type {entry.kind!r} has no end: the adapter must send its "
                    "block-end before it finishes",
                    codes.MALFORMED_RESPONSE,
                )
            yield block

    def _drops(self, entry: _OpenBlock) -> bool:
        return isinstance(self.finish, MaxTokensFinish) and entry.is_call()

    @property
    def replay_state(self) -> ReplayEnvelope | None:
        """The replay state that fits `blocks()`; `None` if there is none or it does not fit."""
        state = self._replay_state
        if state is None or state.blocks is None:
            return state
        if len(state.blocks) != len(self._open):
            return None
        kept = tuple(
            entry
            for entry, block in zip(state.blocks, self._open.values(), strict=True)
            if not self._drops(block)
        )
        return state if len(kept) == len(state.blocks) else replace(state, blocks=kept)

    def message(self, source: ModelSource) -> Message:
        """The assistant message, with a fresh id.

        Args:
            source: The route that answered, usually with this assembler's `replay_state`.
        """
        return create_assistant_message(self.blocks(), source)

    def interrupted_blocks(self) -> tuple[Block, ...]:
        """What a cancelled attempt leaves: text and reasoning with something visible in it."""
        found = (entry.block(index) for index, entry in self._open.items())
        return tuple(
            block
            for block in found
            if isinstance(block, TextBlock | ReasoningBlock) and not is_blank(block.text)
        )
