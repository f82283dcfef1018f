"""A whole answer of a model, for callers who want no chunks."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import anyio
import msgspec

from dsh_llm import codes
from dsh_llm.adapter import is_closable
from dsh_llm.assembler import BlockAssembler
from dsh_llm.blocks import ContentBlock, ReasoningBlock, TextBlock, ToolCallBlock
from dsh_llm.chunks import (
    AbortedFinish,
    ErrorFinish,
    FinishChunk,
    FinishReason,
    StreamChunk,
    TextDelta,
    TokenUsage,
)
from dsh_llm.failures import LlmError, LlmFailure
from dsh_llm.messages import Message, create_assistant_message
from dsh_llm.sources import ModelSource, ReplayEnvelope


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a stream said, complete."""

    blocks: tuple[ContentBlock, ...]
    finish: FinishReason
    usage: TokenUsage | None = None
    replay_state: ReplayEnvelope | None = None

    @property
    def text(self) -> str:
        """The text that is meant for the user."""
        return "".join(block.text for block in self.blocks if isinstance(block, TextBlock))

    @property
    def reasoning(self) -> str:
        """What the model thought before."""
        return "".join(block.text for block in self.blocks if isinstance(block, ReasoningBlock))

    @property
    def tool_calls(self) -> tuple[ToolCallBlock, ...]:
        """The calls that it asks for; each wants an answer in the next request."""
        return tuple(block for block in self.blocks if isinstance(block, ToolCallBlock))

    def message(self, provider: str, model: str) -> Message:
        """The answer as a message for the history of the next request.

        Args:
            provider: The route that gave it.
            model: The model that gave it.
        """
        source = ModelSource(provider=provider, model=model, replay_state=self.replay_state)
        return create_assistant_message(self.blocks, source)


async def collect(
    stream: AsyncIterator[StreamChunk], *, on_text: Callable[[str], object] | None = None
) -> Answer:
    """Read a stream of `ctx.llm` or of an adapter to its end, and close it.

    Args:
        stream: The stream.
        on_text: Gets each piece of text as it arrives.

    Raises:
        LlmError: The call failed or was aborted, however the stream told it; or the stream ended
            before its finish (`STREAM_CLOSED`).
    """
    assembler = BlockAssembler()
    finished = False
    try:
        async for chunk in stream:
            assembler.push(chunk)
            finished = finished or isinstance(chunk, FinishChunk)
            if on_text is not None and isinstance(chunk, TextDelta) and chunk.text:
                on_text(chunk.text)
    finally:
        if is_closable(stream):
            with anyio.CancelScope(shield=True):
                await stream.aclose()
    if not finished:
        raise LlmError("the stream ended without a finish", codes.STREAM_CLOSED)
    if isinstance(assembler.finish, ErrorFinish | AbortedFinish):
        raise _raised(assembler.finish.failure)
    return Answer(
        blocks=tuple(assembler.blocks()),
        finish=assembler.finish,
        usage=assembler.usage,
        replay_state=assembler.replay_state,
    )


def _raised(failure: LlmFailure) -> LlmError:
    facts: dict[str, Any] = msgspec.structs.asdict(failure)  # the facts are keywords of the error
    facts.pop("extra")
    return LlmError(facts.pop("message"), facts.pop("code"), **facts)
