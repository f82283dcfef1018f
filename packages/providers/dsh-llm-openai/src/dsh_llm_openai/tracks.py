"""Open blocks of a response."""

from collections.abc import Callable
from typing import Literal

from dsh_llm import (
    CallId,
    ReasoningBlock,
    ReasoningDelta,
    StreamChunk,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
)
from dsh_llm_http.text import GrowingText


class TextTrack:
    """The text block or the reasoning block of a response."""

    __slots__ = ("_make", "growing", "index", "kind")

    def __init__(self, kind: Literal["text", "reasoning"], index: int) -> None:
        self.kind = kind
        self.index = index
        self.growing = GrowingText()
        self._make: Callable[[int, str], TextDelta | ReasoningDelta] = (
            TextDelta if kind == "text" else ReasoningDelta
        )

    def add(self, text: str, out: list[StreamChunk]) -> None:
        """Take a piece of text in, and send on what can be sent."""
        piece = self.growing.add(text)
        if piece:
            out.append(self._make(self.index, piece))

    def delta(self, piece: str) -> TextDelta | ReasoningDelta:
        """The chunk of a piece."""
        return self._make(self.index, piece)

    def block(self) -> TextBlock | ReasoningBlock:
        """The block as it is now."""
        text = self.growing.text()
        return TextBlock(text) if self.kind == "text" else ReasoningBlock(text)


class CallTrack:
    """One tool call of a response."""

    __slots__ = ("given_id", "growing", "id", "index", "name")

    def __init__(self, index: int, call_id: CallId, given_id: str) -> None:
        self.index = index
        self.id = call_id
        """The id on all chunks; generated where the provider gave none or gave one twice."""
        self.given_id = given_id
        """The provider's id, empty while it gave none."""
        self.name = ""
        self.growing = GrowingText()

    def delta(self, piece: str) -> ToolCallDelta:
        """The chunk of a piece of the arguments."""
        name = self.name or None
        return ToolCallDelta(index=self.index, id=self.id, name=name, arguments_delta=piece)

    def block(self) -> ToolCallBlock:
        """The call as it is now."""
        return ToolCallBlock(self.id, self.name, self.growing.text())


Track = TextTrack | CallTrack
