"""Events with JSON payloads to stream chunks: what the protocols share (L111, L112, L132, L135)."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

import msgspec

from dsh_llm import FinishChunk, FinishReason, ReplayEnvelope, StreamChunk, TokenUsage, UsageChunk

from .failing import StreamFinishes
from .fields import Fields
from .sse import Events

P = TypeVar("P")

_REFUSED = (msgspec.DecodeError, UnicodeDecodeError)
_END_MARK = b"[DONE]"


class PayloadTranslator(ABC, Generic[P]):
    """Folds the events of one response into chunks; a protocol says what a payload means.

    Nearly every payload has the usual shape and is decoded in one typed step. What is refused there
    is read field by field, so that it is either understood or an exact failure.

    Args:
        finishes: Makes the finish of the response.
    """

    decoder: msgspec.json.Decoder[P]
    """For payloads of the usual shape; it refuses those that report an error."""

    def __init__(self, finishes: StreamFinishes) -> None:
        self.finished = False
        """The terminal event was seen; nothing after it is looked at."""
        self.finishes = finishes

    @abstractmethod
    def take(self, payload: P, out: list[StreamChunk]) -> None:
        """The chunks of one payload."""

    @abstractmethod
    def read(self, fields: Fields, name: str) -> P | None:
        """Read a payload that the decoder refused, or a document in its place.

        Args:
            fields: The payload.
            name: The name of its event, empty without one.

        Returns:
            `None` for a payload that reports an error.

        Raises:
            LlmError: `MALFORMED_RESPONSE`: a list or an object is missing where one is needed.
        """

    @abstractmethod
    def fail(self, fields: Fields, out: list[StreamChunk]) -> None:
        """The last chunks of a response that reports an error."""

    @abstractmethod
    def complete(self, out: list[StreamChunk]) -> None:
        """The last chunks of a response that is complete."""

    @abstractmethod
    def may_end(self) -> bool:
        """Whether the body may end now without an end mark."""

    def mark(self, out: list[StreamChunk]) -> None:
        """The last chunks after an end mark.

        Raises:
            LlmError: `STREAM_CLOSED`, where the protocol wants a finish reason first.
        """
        self.complete(out)

    def events(self, events: Events, out: list[StreamChunk]) -> None:
        """See `Translator.events`."""
        exactly = events.document or events.name == "error"
        decode, take = self.decoder.decode, self.take
        for data in events.data:
            try:
                payload = None if exactly else decode(data)
            except _REFUSED:
                payload = None
            if payload is not None:
                take(payload, out)
            else:
                self._exactly(data, events, out)
            if self.finished:
                return

    def end(self, out: list[StreamChunk]) -> None:
        """See `Translator.end`."""
        if not self.may_end():
            raise self.finishes.closed()
        self.complete(out)

    def finish(
        self,
        reason: FinishReason,
        usage: TokenUsage | None,
        out: list[StreamChunk],
        replay_state: ReplayEnvelope | None = None,
    ) -> None:
        """Usage and finish: the very last chunks."""
        self.finished = True
        if usage is not None:
            out.append(UsageChunk(usage))
        out.append(FinishChunk(reason, replay_state))

    def _exactly(self, data: bytes, events: Events, out: list[StreamChunk]) -> None:
        if data.strip() == _END_MARK:
            self.mark(out)
            return
        fields = Fields.of(data, document=events.document)
        payload = self.read(fields, events.name)
        if payload is None:
            self.fail(fields, out)
            return
        self.take(payload, out)
        if events.document and not self.finished:
            self.mark(out)
