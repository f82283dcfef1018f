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


class _OpenBlock:
    """What is known of a block so far; `closed` is its end, which is authoritative."""

    __slots__ = ("arguments", "closed", "id", "kind", "name", "text")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.text: list[str] = []
        self.arguments: list[str] = []
        self.id = ""
        self.name = ""
        self.closed: Block | None = None

    def add_call(self, chunk: ToolCallDelta) -> None:
        self.id = chunk.id or self.id
        self.name = chunk.name or self.name
        self.arguments.append(chunk.arguments_delta)

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
                return TextBlock(_joined(self.text))
            case "reasoning":
                return ReasoningBlock(_joined(self.text))
            case "tool-call":
                call_id = CallId(self.id or f"call-{index}")
                return ToolCallBlock(call_id, self.name, _joined(self.arguments))
            case _:
                return None


def _joined(pieces: list[str]) -> str:
    """The text of pieces that grow at their end; reading again costs only what came since."""
    if len(pieces) > 1:
        pieces[:] = ["".join(pieces)]
    return pair_surrogates(pieces[0]) if pieces else ""


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
        if type(chunk) is TextDelta or type(chunk) is ReasoningDelta:
            block = self._open.get(chunk.index)
            if block is None:
                block = self._block(
                    chunk.index, "text" if type(chunk) is TextDelta else "reasoning"
                )
            if block.closed is None:
                block.text.append(chunk.text)
        elif type(chunk) is ToolCallDelta:
            block = self._block(chunk.index, "tool-call")
            if block.closed is None:
                block.add_call(chunk)
        elif type(chunk) is BlockStart:
            self._block(chunk.index, chunk.block_type)
        elif type(chunk) is BlockEnd:
            block = self._block(chunk.index, chunk.block.type)
            if block.closed is None:
                block.closed = chunk.block
        elif type(chunk) is UsageChunk:
            self.usage = chunk.usage
        elif type(chunk) is FinishChunk:
            self.finish = chunk.reason
            self._replay_state = chunk.replay_state

    def _block(self, index: int, kind: str) -> _OpenBlock:
        block = self._open.get(index)
        if block is None:
            block = self._open[index] = _OpenBlock(kind)
        return block

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
