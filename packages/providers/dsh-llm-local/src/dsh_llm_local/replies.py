"""Replies in the form of `protocol`, back to the chunks of ordinary text and tool calls."""

import json
import re
from collections.abc import Sequence
from uuid import uuid4

from dsh_brand import decode_json, encode_json
from dsh_llm import (
    BlockEnd,
    BlockStart,
    CallId,
    FinishChunk,
    MaxTokensFinish,
    StopFinish,
    StreamChunk,
    TextBlock,
    TextDelta,
    ToolCallBlock,
    ToolCallDelta,
    ToolCallsFinish,
)
from dsh_llm_http import Events, Translator
from dsh_llm_http.text import GrowingText

_ANSWER = re.compile(r'\s*\{\s*"answer"\s*:\s*"')
_CALL = re.compile(r'\s*\{\s*"tool"')
_STRING = re.compile(r'(?:[^"\\]|\\(?:u[0-9a-fA-F]{4}|[^u]))*')
"""The part of a JSON string that is complete: up to its end, or to half an escape."""
_LONGEST_OPENING = 200
"""What has no known form after so many characters is no reply."""
_NAME = re.compile(r'\s*\{\s*"tool"\s*:\s*"([^"\\]*)"\s*,\s*"arguments"\s*:\s*')


class ReplyTranslator:
    """Wraps the translator of the protocol below it: its text is read as a reply.

    An answer streams on as it grows; a call comes whole, at its end.
    """

    def __init__(self, inner: Translator) -> None:
        self.finished = inner.finished
        self._inner = inner
        self._index = 0
        self._parts: list[str] = []
        self._answer: _Answer | None = None
        self._undecided = True
        self._called = False

    def events(self, events: Events, out: list[StreamChunk]) -> None:
        """See `Translator.events`."""
        chunks: list[StreamChunk] = []
        try:
            self._inner.events(events, chunks)
        finally:
            self._convert(chunks, out)

    def end(self, out: list[StreamChunk]) -> None:
        """See `Translator.end`."""
        chunks: list[StreamChunk] = []
        self._inner.end(chunks)
        self._convert(chunks, out)

    def _convert(self, chunks: Sequence[StreamChunk], out: list[StreamChunk]) -> None:
        self.finished = self._inner.finished
        for chunk in chunks:
            match chunk:
                case BlockStart(block_type="text"):
                    self._index = chunk.index  # what it will be shows in its first characters
                case TextDelta():
                    self._read(chunk.text, out)
                case BlockEnd(block=TextBlock()):
                    cut = any(
                        isinstance(c, FinishChunk) and isinstance(c.reason, MaxTokensFinish)
                        for c in chunks
                    )
                    self._close(cut, out)
                case FinishChunk(reason=StopFinish()) if self._called:
                    out.append(FinishChunk(ToolCallsFinish()))
                case _:
                    out.append(chunk)

    def _read(self, text: str, out: list[StreamChunk]) -> None:
        if self._answer is not None:
            self._answer.read(text, out)
            return
        self._parts.append(text)
        if not self._undecided:
            return
        begun = "".join(self._parts)
        if found := _ANSWER.match(begun):
            self._answer = _Answer(self._index, out)
            self._answer.read(begun[found.end() :], out)
        self._undecided = _CALL.match(begun) is None and len(begun) < _LONGEST_OPENING

    def _close(self, cut: bool, out: list[StreamChunk]) -> None:
        if self._answer is not None:
            self._answer.close(out)
            return
        text = "".join(self._parts)
        call = _call_of(text, cut)
        if call is not None:
            self._called = True
            out += [
                BlockStart(self._index, "tool-call"),
                ToolCallDelta(
                    index=self._index,
                    id=call.id,
                    name=call.name,
                    arguments_delta=call.arguments,
                ),
                BlockEnd(self._index, call),
            ]
        elif not cut:
            # A server without grammars: what the model wrote is its answer.
            block = TextBlock(text)
            out += [
                BlockStart(self._index, "text"),
                TextDelta(self._index, text),
                BlockEnd(self._index, block),
            ]


class _Answer:
    """The text of an answer, read out of its JSON string piece by piece."""

    def __init__(self, index: int, out: list[StreamChunk]) -> None:
        self._index = index
        self._text = GrowingText()
        self._held = ""
        self._over = False
        out.append(BlockStart(index, "text"))

    def read(self, text: str, out: list[StreamChunk]) -> None:
        if self._over:
            return
        text = self._held + text
        found = _STRING.match(text)
        end = 0 if found is None else found.end()
        self._held = text[end:]
        self._over = self._held.startswith('"')
        self._emit(self._text.add(_unescaped(text[:end])), out)

    def close(self, out: list[StreamChunk]) -> None:
        self._emit(self._text.rest(), out)
        out.append(BlockEnd(self._index, TextBlock(self._text.text())))

    def _emit(self, text: str, out: list[StreamChunk]) -> None:
        if text:
            out.append(TextDelta(self._index, text))


def _unescaped(text: str) -> str:
    try:
        # Not strict: without a grammar a model may write a line break as it is.
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def _call_of(text: str, cut: bool) -> ToolCallBlock | None:
    """The call that a reply makes; of one that was cut off, what there is."""
    call_id = CallId(f"call_{uuid4().hex}")
    try:
        reply = decode_json(text)
    except ValueError:
        found = _NAME.match(text) if cut else None
        return None if found is None else ToolCallBlock(call_id, found[1], text[found.end() :])
    if not isinstance(reply, dict):
        return None
    name, arguments = reply.get("tool"), reply.get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return ToolCallBlock(call_id, name, encode_json(arguments).decode())
