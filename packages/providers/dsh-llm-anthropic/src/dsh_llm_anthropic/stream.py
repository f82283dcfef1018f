"""Messages frames to stream chunks.

Upstream: packages/llm/llm-anthropic/src/stream.ts.
"""

from collections.abc import Callable, Mapping

import msgspec

from dsh_brand import scrub_surrogates
from dsh_llm import (
    ErrorFinish,
    FinishChunk,
    FinishReason,
    MaxTokensFinish,
    StreamChunk,
    UsageChunk,
    codes,
)
from dsh_llm_http import Frame
from dsh_llm_http.failing import StreamFinishes

from .payloads import Block, Delta, Payload, ProviderFault, decode_fast, read_payload
from .replay import envelope
from .tracks import CallTrack, TextTrack, ThinkingTrack, Track, call_id
from .usage import UsageCounts

_OWN_KINDS: Mapping[str, str] = {"billing_error": codes.QUOTA}


class ChunkTranslator:
    """Folds the frames of one response into chunks.

    Args:
        label: How the route is named to people.
        redact: Takes the credential out of provider text.
        request_id: The provider's id of the request, from the response headers.
        model: The model that was asked, for a response that does not name its own.
    """

    def __init__(
        self,
        label: str,
        redact: Callable[[str], str],
        request_id: str | None = None,
        *,
        model: str = "",
    ) -> None:
        self.finished = False
        """The terminal event was seen; nothing after it is looked at."""
        self._label = label
        self._finishes = StreamFinishes(label, redact, request_id)
        self._response_id = ""
        self._model = model
        self._usage = UsageCounts()
        self._tracks: dict[int | None, Track | None] = {}
        """By the provider's index; `None` for a block that this adapter does not read."""
        self._opened: list[Track] = []
        self._call_ids: set[str] = set()
        self._stop: str | None = None
        self._explanation = ""

    def frame(self, frame: Frame) -> list[StreamChunk]:
        """The chunks of one frame.

        Raises:
            LlmError: `MALFORMED_RESPONSE`, or `STREAM_CLOSED` for an end mark that comes early.
        """
        payload: Payload | ProviderFault
        try:
            payload = decode_fast(frame.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            if frame.data.strip() == b"[DONE]":
                return self.end()  # of a proxy that speaks both protocols
            payload = read_payload(frame.data, event=frame.event, document=frame.document)
        else:
            if payload.type is None or payload.type == "error" or frame.event == "error":
                payload = read_payload(frame.data, event=frame.event, document=frame.document)
        if isinstance(payload, ProviderFault):
            return self._fail(payload)
        out: list[StreamChunk] = []
        match payload.type:
            case "content_block_delta":
                if payload.delta is not None:
                    self._grow(payload.index, payload.delta, out)
            case "content_block_start":
                if payload.content_block is not None:
                    self._begin(payload.index, payload.content_block, out)
            case "content_block_stop":
                self._end(payload.index, out)
            case "message_start":
                self._start(payload)
            case "message_delta":
                self._take_message_delta(payload)
            case "message_stop":
                self._complete(out)
            case "message":
                self._take_document(payload, out)
            case _:
                pass  # `ping`, and what later versions of the protocol add
        return out

    def end(self) -> list[StreamChunk]:
        """The chunks of a clean end of the body.

        Raises:
            LlmError: `STREAM_CLOSED`: neither the end mark nor a stop reason was seen.
        """
        if self._stop is None:
            raise self._finishes.closed()
        out: list[StreamChunk] = []
        self._complete(out)
        return out

    def _start(self, payload: Payload) -> None:
        message = payload.message
        if message is not None:
            self._response_id = scrub_surrogates(message.id or "")
            self._model = scrub_surrogates(message.model or "") or self._model
            self._usage.take(message.usage)

    def _take_message_delta(self, payload: Payload) -> None:
        self._usage.take(payload.usage)
        delta = payload.delta
        if delta is None:
            return
        if delta.stop_reason:
            self._stop = scrub_surrogates(delta.stop_reason)
        if delta.stop_details is not None and delta.stop_details.explanation:
            self._explanation = delta.stop_details.explanation

    def _begin(self, index: int | None, block: Block, out: list[StreamChunk]) -> None:
        self._end(index, out)  # an index that is given out again
        match block.type:
            case "text":
                self._tracks[index] = track = TextTrack()
                self._add_text(track, block.text, out)
            case "thinking" | "redacted_thinking":
                redacted = block.type == "redacted_thinking"
                data = scrub_surrogates(block.data or "") if redacted else None
                thinking = ThinkingTrack(len(self._opened), data, out)
                self._open(index, thinking)
                if not redacted:
                    thinking.add(block.thinking or "", out)
                    thinking.signature = scrub_surrogates(block.signature or "")
            case "tool_use":
                own = call_id(block.id, self._call_ids)
                name = scrub_surrogates(block.name or "")
                self._open(index, CallTrack(len(self._opened), name, own, block.input, out))
            case _:
                self._tracks[index] = None

    def _open(self, index: int | None, track: Track) -> None:
        self._tracks[index] = track
        self._opened.append(track)

    def _add_text(self, track: TextTrack, text: str | None, out: list[StreamChunk]) -> None:
        if text:
            if not track.opened:
                track.open(len(self._opened), out)
                self._opened.append(track)
            track.add(text, out)

    def _grow(self, index: int | None, delta: Delta, out: list[StreamChunk]) -> None:
        track = self._tracks.get(index)
        if track is None:
            track = self._unannounced(index, delta, out)
        kind = delta.type
        if isinstance(track, TextTrack):
            if kind == "text_delta":
                self._add_text(track, delta.text, out)
        elif isinstance(track, ThinkingTrack):
            if kind == "thinking_delta":
                track.add(delta.thinking or "", out)
            elif kind == "signature_delta" and delta.signature:
                track.signature = scrub_surrogates(delta.signature)
        elif track is not None and kind == "input_json_delta":
            track.add(delta.partial_json or "", out)

    def _unannounced(self, index: int | None, delta: Delta, out: list[StreamChunk]) -> Track | None:
        """The block of a delta that no start announced; its words would be lost otherwise."""
        if index not in self._tracks and delta.type in ("text_delta", "thinking_delta"):
            kind = "text" if delta.type == "text_delta" else "thinking"
            self._begin(index, Block(type=kind), out)
        return self._tracks.get(index)

    def _end(self, index: int | None, out: list[StreamChunk]) -> None:
        track = self._tracks.pop(index, None)
        if track is not None:
            _close(track, out)

    def _take_document(self, payload: Payload, out: list[StreamChunk]) -> None:
        """A whole message, from a service that does not stream."""
        self._response_id = scrub_surrogates(payload.id or "")
        self._model = scrub_surrogates(payload.model or "") or self._model
        self._usage.take(payload.usage)
        self._stop = scrub_surrogates(payload.stop_reason or "") or None
        for index, block in enumerate(payload.content or ()):
            self._begin(index, block, out)
            self._end(index, out)
        self._complete(out)

    def _complete(self, out: list[StreamChunk]) -> None:
        # In the order of opening: text opens at its first text, not at its start.
        open_now = {id(track) for track in self._tracks.values()}
        for track in self._opened:
            if id(track) in open_now:
                track.close(out)
        self._tracks.clear()
        self._finish(self._reason(), out)

    def _reason(self) -> FinishReason:
        content = bool(self._opened)
        match self._stop:
            case "pause_turn":
                return self._finishes.completed("stop", content=content)
            case "model_context_window_exceeded" if content:
                return MaxTokensFinish()
            case "model_context_window_exceeded":
                message = f"{self._label}: the request does not fit the model's context window"
                return self._finishes.error(message, codes.CONTEXT_WINDOW_EXCEEDED)
            case "refusal":
                return self._finishes.refused("refusal", self._explanation)
            case word:
                return self._finishes.completed(word or "", content=content)

    def _finish(self, reason: FinishReason, out: list[StreamChunk]) -> None:
        self.finished = True
        usage = self._usage.usage()
        if usage is not None:
            out.append(UsageChunk(usage))
        state = None
        if not isinstance(reason, ErrorFinish):
            entries = [track.entry() for track in self._opened]
            state = envelope(self._response_id, self._model, self._stop, entries)
        out.append(FinishChunk(reason, state))

    def _fail(self, fault: ProviderFault) -> list[StreamChunk]:
        out: list[StreamChunk] = []
        self._finish(self._finishes.reported(fault.body, _OWN_KINDS), out)
        return out


def _close(track: Track, out: list[StreamChunk]) -> None:
    if not isinstance(track, TextTrack) or track.opened:
        track.close(out)
