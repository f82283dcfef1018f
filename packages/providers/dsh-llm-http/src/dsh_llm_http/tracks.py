"""Open blocks of a response."""

from collections.abc import Callable
from typing import Literal
from uuid import uuid4

from dsh_brand import scrub_surrogates
from dsh_llm import (
    BlockEnd,
    BlockStart,
    CallId,
    ReasoningBlock,
    ReasoningDelta,
    StreamChunk,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
)

from .text import GrowingText


class TextTrack(GrowingText):
    """A text block or a reasoning block, from its start on."""

    __slots__ = ("_delta", "index", "kind")

    def __init__(
        self, kind: Literal["text", "reasoning"], index: int, out: list[StreamChunk]
    ) -> None:
        super().__init__()
        self.kind = kind
        self.index = index
        self._delta: Callable[[int, str], TextDelta | ReasoningDelta] = (
            TextDelta if kind == "text" else ReasoningDelta
        )
        out.append(BlockStart(index, kind))

    def send(self, text: str, out: list[StreamChunk]) -> None:
        """More text; what of it can be sent now."""
        if self._half or not text.isascii():
            text = self._joined(text)
        if text:
            self._parts.append(text)
            out.append(self._delta(self.index, text))

    def flush(self, out: list[StreamChunk]) -> None:
        """What is left to send at the end."""
        if rest := self.rest():
            out.append(self._delta(self.index, rest))

    def close(self, out: list[StreamChunk]) -> None:
        """The block is complete."""
        self.flush(out)
        text = self.text()
        block = TextBlock(text) if self.kind == "text" else ReasoningBlock(text)
        out.append(BlockEnd(self.index, block))


class CallTrack(GrowingText):
    """A tool call, from its start on."""

    __slots__ = ("id", "index", "name")

    def __init__(self, index: int, call_id: CallId, name: str, out: list[StreamChunk]) -> None:
        super().__init__()
        self.index = index
        self.id = call_id
        """The id on all chunks."""
        self.name = name
        """May become known later."""
        out.append(BlockStart(index, "tool-call"))

    def send(self, text: str, out: list[StreamChunk], *, always: bool = False) -> None:
        """More of the arguments; what of it can be sent now.

        Args:
            text: The piece.
            out: Takes the chunk.
            always: Send a chunk for the name or the start, even without arguments.
        """
        piece = self.add(text)
        if piece or always:
            self._append(piece, out)

    def flush(self, out: list[StreamChunk]) -> None:
        """What is left to send at the end."""
        if rest := self.rest():
            self._append(rest, out)

    def close(self, out: list[StreamChunk]) -> None:
        """The call is complete."""
        self.flush(out)
        out.append(BlockEnd(self.index, ToolCallBlock(self.id, self.name, self.text())))

    def _append(self, piece: str, out: list[StreamChunk]) -> None:
        name = self.name or None
        out.append(ToolCallDelta(index=self.index, id=self.id, name=name, arguments_delta=piece))


def call_id(given: str | None, taken: set[str], prefix: str) -> CallId:
    """The id of a call: the provider's, unless it gave none or gave one twice.

    Args:
        given: The provider's.
        taken: Ids of the response; the new one joins them.
        prefix: How one that is made up begins.
    """
    own = scrub_surrogates(given or "")
    found = own if own and own not in taken else f"{prefix}_{uuid4().hex}"
    taken.add(found)
    return CallId(found)
