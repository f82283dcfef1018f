"""Chat-completions frames to stream chunks.

Upstream: packages/llm/llm-openai/src/stream.ts.
"""

from collections.abc import Callable
from typing import Literal

import msgspec

from dsh_brand import scrub_surrogates
from dsh_llm import (
    BlockEnd,
    BlockStart,
    FinishChunk,
    FinishReason,
    StreamChunk,
    UsageChunk,
)
from dsh_llm_http import Frame
from dsh_llm_http.failing import StreamFinishes

from .calls import CallTable
from .payloads import (
    Delta,
    Payload,
    ProviderFault,
    ToolFragment,
    Usage,
    decode_fast,
    read_payload,
)
from .tracks import TextTrack, Track
from .usage import token_usage, usable


class ChunkTranslator:
    """Folds the frames of one response into chunks.

    Args:
        label: How the route is named to people.
        redact: Takes the credential out of provider text.
        request_id: The provider's id of the request, from the response headers.
    """

    def __init__(
        self, label: str, redact: Callable[[str], str], request_id: str | None = None
    ) -> None:
        self.finished = False
        """The terminal event was seen; nothing after it is looked at."""
        self._finishes = StreamFinishes(label, redact, request_id)
        self._reasoning: TextTrack | None = None
        self._text: TextTrack | None = None
        self._calls = CallTable()
        self._open: list[Track] = []
        self._usage: Usage | None = None
        self._finish_word = ""

    def frame(self, frame: Frame) -> list[StreamChunk]:
        """The chunks of one frame.

        Raises:
            LlmError: `MALFORMED_RESPONSE`.
        """
        payload: Payload | ProviderFault
        try:
            payload = decode_fast(frame.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            if frame.data.strip() == b"[DONE]":
                return self._complete()
            payload = read_payload(frame.data, event=frame.event, document=frame.document)
        else:
            if frame.event == "error" or frame.document:
                payload = read_payload(frame.data, event=frame.event, document=frame.document)
        if isinstance(payload, ProviderFault):
            return self._fail(payload)
        out: list[StreamChunk] = []
        self._take(payload, out)
        if frame.document:
            out += self._complete()
        return out

    def end(self) -> list[StreamChunk]:
        """The chunks of a clean end of the body.

        Raises:
            LlmError: `STREAM_CLOSED`: neither the end mark nor a finish reason was seen.
        """
        if not self._finish_word:
            raise self._finishes.closed()
        return self._complete()

    def _take(self, payload: Payload, out: list[StreamChunk]) -> None:
        if payload.usage is not None and usable(payload.usage):
            self._usage = payload.usage
        for choice in payload.choices or ():
            if choice.index:
                continue
            if choice.usage is not None and usable(choice.usage):
                self._usage = choice.usage
            delta = choice.delta if choice.delta is not None else choice.message
            if delta is not None:
                self._take_delta(delta, out)
            if choice.finish_reason:
                self._finish_word = choice.finish_reason

    def _take_delta(self, delta: Delta, out: list[StreamChunk]) -> None:
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            if self._reasoning is None:
                self._reasoning = self._begin_text("reasoning", out)
            self._reasoning.add(thought, out)
        said = delta.content
        if delta.refusal:
            said = (said or "") + delta.refusal
        if said:
            if self._text is None:
                self._text = self._begin_text("text", out)
            self._text.add(said, out)
        if delta.tool_calls:
            for fragment in delta.tool_calls:
                self._take_fragment(fragment, out)
        if delta.function_call is not None:
            self._take_fragment(ToolFragment(index=0, function=delta.function_call), out)

    def _begin_text(self, kind: Literal["text", "reasoning"], out: list[StreamChunk]) -> TextTrack:
        track = TextTrack(kind, len(self._open))
        self._open.append(track)
        out.append(BlockStart(track.index, kind))
        return track

    def _take_fragment(self, fragment: ToolFragment, out: list[StreamChunk]) -> None:
        call = self._calls.find(fragment)
        opened = call is None
        if call is None:
            call = self._calls.begin(fragment, len(self._open))
            self._open.append(call)
            out.append(BlockStart(call.index, "tool-call"))
        function = fragment.function
        name = scrub_surrogates(function.name) if function and function.name else call.name
        renamed = name != call.name
        call.name = name
        piece = call.growing.add(function.arguments) if function and function.arguments else ""
        if piece or opened or renamed:
            out.append(call.delta(piece))

    def _complete(self) -> list[StreamChunk]:
        out: list[StreamChunk] = []
        for track in self._open:
            rest = track.growing.rest()
            if rest:
                out.append(track.delta(rest))
        out += [BlockEnd(track.index, track.block()) for track in self._open]
        reason = self._finishes.completed(self._finish_word, content=bool(self._open))
        return self._finish(reason, out)

    def _finish(self, reason: FinishReason, out: list[StreamChunk]) -> list[StreamChunk]:
        self.finished = True
        if self._usage is not None:
            out.append(UsageChunk(token_usage(self._usage)))
        out.append(FinishChunk(reason))
        return out

    def _fail(self, fault: ProviderFault) -> list[StreamChunk]:
        if usable(fault.usage):
            self._usage = fault.usage
        return self._finish(self._finishes.reported(fault.body), [])
