"""Messages events to stream chunks.

Upstream: packages/llm/llm-anthropic/src/stream.ts.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec
from typing_extensions import override

from dsh_brand import scrub_surrogates
from dsh_llm import ErrorFinish, FinishReason, MaxTokensFinish, StreamChunk, codes
from dsh_llm_http import PayloadTranslator, StreamFinishes
from dsh_llm_http.fields import Fields
from dsh_llm_http.tracks import TextTrack, call_id

from .payloads import Block, Delta, Payload, read_payload
from .replay import envelope
from .tracks import InputTrack, ThinkingTrack, Track, entry
from .usage import UsageCounts

_OWN_KINDS: Mapping[str, str] = {"billing_error": codes.QUOTA}


class ChunkTranslator(PayloadTranslator[Payload]):
    """Folds the events of one response into chunks.

    Args:
        finishes: Makes the finish of the response.
        model: The model that was asked, for a response that does not name its own.
    """

    decoder = msgspec.json.Decoder(Payload)

    def __init__(self, finishes: StreamFinishes, model: str) -> None:
        super().__init__(finishes)
        self._response_id = ""
        self._model = model
        self._usage = UsageCounts()
        self._tracks: dict[int | None, Track | Literal["text"] | None] = {}
        """By the provider's index; `text` for a text block without text, `None` for a block that
        this adapter does not read.
        """
        self._opened: list[Track] = []
        self._call_ids: set[str] = set()
        self._stop: str | None = None
        self._explanation = ""

    @override
    def read(self, fields: Fields, name: str) -> Payload | None:
        kind = fields.string("type") or name
        if kind == "error" or fields.names_error():
            return None
        return read_payload(fields, kind)

    @override
    def take(self, payload: Payload, out: list[StreamChunk]) -> None:
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
                self.complete(out)
            case "message":
                self._take_document(payload, out)
            case "ping":
                pass

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
                self._tracks[index] = "text"
                if block.text:
                    self._open_text(index, out).send(block.text, out)
            case "thinking" | "redacted_thinking":
                redacted = block.type == "redacted_thinking"
                data = scrub_surrogates(block.data or "") if redacted else None
                thinking = ThinkingTrack(len(self._opened), data, out)
                self._open(index, thinking)
                if not redacted:
                    thinking.send(block.thinking or "", out)
                    thinking.signature = scrub_surrogates(block.signature or "")
            case "tool_use":
                own = call_id(block.id, self._call_ids, "toolu")
                name = scrub_surrogates(block.name or "")
                self._open(index, InputTrack(len(self._opened), own, name, block.input, out))
            case _:
                self._tracks[index] = None

    def _open(self, index: int | None, track: Track) -> None:
        self._tracks[index] = track
        self._opened.append(track)

    def _open_text(self, index: int | None, out: list[StreamChunk]) -> TextTrack:
        track = TextTrack("text", len(self._opened), out)
        self._open(index, track)
        return track

    def _grow(self, index: int | None, delta: Delta, out: list[StreamChunk]) -> None:
        track = self._tracks.get(index)
        if track is None:
            track = self._unannounced(index, delta, out)
        kind = delta.type
        if isinstance(track, ThinkingTrack):
            if kind == "thinking_delta":
                track.send(delta.thinking or "", out)
            elif kind == "signature_delta" and delta.signature:
                track.signature = scrub_surrogates(delta.signature)
        elif isinstance(track, InputTrack):
            if kind == "input_json_delta":
                track.send(delta.partial_json or "", out)
        elif track is not None and kind == "text_delta" and delta.text:
            text = self._open_text(index, out) if track == "text" else track
            text.send(delta.text, out)

    def _unannounced(
        self, index: int | None, delta: Delta, out: list[StreamChunk]
    ) -> Track | Literal["text"] | None:
        """The block of a delta that no start announced; its words would be lost otherwise."""
        if index not in self._tracks and delta.type in ("text_delta", "thinking_delta"):
            kind = "text" if delta.type == "text_delta" else "thinking"
            self._begin(index, Block(type=kind), out)
        return self._tracks.get(index)

    def _end(self, index: int | None, out: list[StreamChunk]) -> None:
        track = self._tracks.pop(index, None)
        if track is not None and track != "text":
            track.close(out)

    def _take_document(self, payload: Payload, out: list[StreamChunk]) -> None:
        """A whole message, from a service that does not stream."""
        self._response_id = scrub_surrogates(payload.id or "")
        self._model = scrub_surrogates(payload.model or "") or self._model
        self._usage.take(payload.usage)
        self._stop = scrub_surrogates(payload.stop_reason or "") or None
        for index, block in enumerate(payload.content or ()):
            self._begin(index, block, out)
            self._end(index, out)
        self.complete(out)

    @override
    def may_end(self) -> bool:
        return self._stop is not None

    @override
    def mark(self, out: list[StreamChunk]) -> None:
        self.end(out)  # of a proxy that speaks both protocols

    @override
    def complete(self, out: list[StreamChunk]) -> None:
        # In the order of opening: text opens at its first text, not at its start.
        open_now = {id(track) for track in self._tracks.values()}
        for track in self._opened:
            if id(track) in open_now:
                track.close(out)
        self._tracks.clear()
        self._finish(self._reason(), out)

    @override
    def fail(self, fields: Fields, out: list[StreamChunk]) -> None:
        self._finish(self.finishes.reported(fields.values, _OWN_KINDS), out)

    def _reason(self) -> FinishReason:
        content = bool(self._opened)
        match self._stop:
            case "pause_turn":
                return self.finishes.completed("stop", content=content)
            case "model_context_window_exceeded" if content:
                return MaxTokensFinish()
            case "model_context_window_exceeded":
                message = (
                    f"{self.finishes.label}: the request does not fit the model's context window"
                )
                return self.finishes.error(message, codes.CONTEXT_WINDOW_EXCEEDED)
            case "refusal":
                return self.finishes.refused("refusal", self._explanation)
            case word:
                return self.finishes.completed(word or "", content=content)

    def _finish(self, reason: FinishReason, out: list[StreamChunk]) -> None:
        state = None
        if not isinstance(reason, ErrorFinish):
            entries = [entry(track) for track in self._opened]
            state = envelope(self._response_id, self._model, self._stop, entries)
        self.finish(reason, self._usage.usage(), out, state)
