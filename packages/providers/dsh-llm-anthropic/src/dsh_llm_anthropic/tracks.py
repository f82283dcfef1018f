"""Open blocks of a response, and what each leaves for the replay state."""

from uuid import uuid4

import msgspec

from dsh_brand import JsonObject, decode_json, encode_json, scrub_surrogates
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
from dsh_llm_http.text import GrowingText

from . import replay


class TextTrack:
    """A text block; it opens at its first text."""

    __slots__ = ("_growing", "_index", "opened")

    def __init__(self) -> None:
        self.opened = False
        self._index = -1
        self._growing = GrowingText()

    def open(self, index: int, out: list[StreamChunk]) -> None:
        """The block gets its index."""
        self.opened = True
        self._index = index
        out.append(BlockStart(index, "text"))

    def add(self, text: str, out: list[StreamChunk]) -> None:
        """More text."""
        piece = self._growing.add(text)
        if piece:
            out.append(TextDelta(self._index, piece))

    def close(self, out: list[StreamChunk]) -> None:
        """The block is complete."""
        rest = self._growing.rest()
        if rest:
            out.append(TextDelta(self._index, rest))
        out.append(BlockEnd(self._index, TextBlock(self._growing.text())))

    def entry(self) -> JsonObject:
        """Its entry in the replay state."""
        return replay.text_entry()


class ThinkingTrack:
    """A thinking block, or one whose text the provider hides."""

    __slots__ = ("_growing", "_index", "_redacted", "signature")

    def __init__(self, index: int, redacted: str | None, out: list[StreamChunk]) -> None:
        self._index = index
        self._redacted = redacted
        self._growing = GrowingText()
        self.signature = ""
        out.append(BlockStart(index, "reasoning"))

    def add(self, text: str, out: list[StreamChunk]) -> None:
        """More thought."""
        piece = self._growing.add(text)
        if piece:
            out.append(ReasoningDelta(self._index, piece))

    def close(self, out: list[StreamChunk]) -> None:
        """The block is complete."""
        rest = self._growing.rest()
        if rest:
            out.append(ReasoningDelta(self._index, rest))
        out.append(BlockEnd(self._index, ReasoningBlock(self._growing.text())))

    def entry(self) -> JsonObject:
        """Its entry in the replay state."""
        return replay.reasoning_entry(self.signature, self._redacted)


class CallTrack:
    """A tool call."""

    __slots__ = ("_growing", "_id", "_index", "_input", "_name")

    def __init__(
        self,
        index: int,
        name: str,
        call_id: CallId,
        given_input: msgspec.Raw | None,
        out: list[StreamChunk],
    ) -> None:
        self._index = index
        self._name = name
        self._id = call_id
        self._input = given_input
        self._growing = GrowingText()
        out.append(BlockStart(index, "tool-call"))
        self._send("", out)

    def add(self, text: str, out: list[StreamChunk]) -> None:
        """More of the arguments."""
        piece = self._growing.add(text)
        if piece:
            self._send(piece, out)

    def close(self, out: list[StreamChunk]) -> None:
        """The call is complete; without argument text it has the input of its start."""
        rest = self._growing.rest()
        if rest:
            self._send(rest, out)
        if not self._growing.text():
            self.add(_compact(self._input), out)
        out.append(BlockEnd(self._index, ToolCallBlock(self._id, self._name, self._growing.text())))

    def entry(self) -> JsonObject:
        """Its entry in the replay state."""
        return replay.call_entry()

    def _send(self, piece: str, out: list[StreamChunk]) -> None:
        name = self._name or None
        out.append(ToolCallDelta(index=self._index, id=self._id, name=name, arguments_delta=piece))


Track = TextTrack | ThinkingTrack | CallTrack


def call_id(given: str | None, taken: set[str]) -> CallId:
    """The id of a call: the provider's, unless it gave none or gave one twice."""
    own = scrub_surrogates(given or "")
    found = own if own and own not in taken else f"toolu_{uuid4().hex}"
    taken.add(found)
    return CallId(found)


def _compact(given: msgspec.Raw | None) -> str:
    if given is None:
        return "{}"
    return scrub_surrogates(encode_json(decode_json(bytes(given))).decode())
