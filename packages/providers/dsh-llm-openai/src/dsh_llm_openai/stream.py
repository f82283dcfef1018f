"""Chat-completions events to stream chunks.

Upstream: packages/llm/llm-openai/src/stream.ts.
"""

import msgspec
from typing_extensions import override

from dsh_brand import scrub_surrogates
from dsh_llm import StreamChunk, TokenUsage
from dsh_llm_http import PayloadTranslator, StreamFinishes
from dsh_llm_http.fields import Fields
from dsh_llm_http.tracks import CallTrack, TextTrack

from .calls import CallTable
from .payloads import Delta, Payload, ToolFragment, Usage, read_payload, read_usage
from .usage import token_usage, usable


class ChunkTranslator(PayloadTranslator[Payload]):
    """Folds the events of one response into chunks."""

    decoder = msgspec.json.Decoder(Payload)

    def __init__(self, finishes: StreamFinishes) -> None:
        super().__init__(finishes)
        self._reasoning: TextTrack | None = None
        self._text: TextTrack | None = None
        self._calls = CallTable()
        self._open: list[TextTrack | CallTrack] = []
        self._usage: Usage | None = None
        self._finish_word = ""

    @override
    def read(self, fields: Fields, name: str) -> Payload | None:
        reports_error = name == "error" or fields.string("object") == "error"
        return None if reports_error or fields.names_error() else read_payload(fields)

    @override
    def take(self, payload: Payload, out: list[StreamChunk]) -> None:
        if payload.usage is not None:
            self._take_usage(payload.usage)
        for choice in payload.choices or ():
            if choice.index:
                continue
            if choice.usage is not None:
                self._take_usage(choice.usage)
            delta = choice.delta if choice.delta is not None else choice.message
            if delta is not None:
                self._take_delta(delta, out)
            if choice.finish_reason:
                self._finish_word = choice.finish_reason

    def _take_usage(self, usage: Usage) -> None:
        if usable(usage):
            self._usage = usage

    def _take_delta(self, delta: Delta, out: list[StreamChunk]) -> None:
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            if self._reasoning is None:
                self._reasoning = TextTrack("reasoning", len(self._open), out)
                self._open.append(self._reasoning)
            self._reasoning.send(thought, out)
        said = delta.content
        if delta.refusal:
            said = (said or "") + delta.refusal
        if said:
            if self._text is None:
                self._text = TextTrack("text", len(self._open), out)
                self._open.append(self._text)
            self._text.send(said, out)
        if delta.tool_calls:
            for fragment in delta.tool_calls:
                self._take_fragment(fragment, out)
        if delta.function_call is not None:
            self._take_fragment(ToolFragment(index=0, function=delta.function_call), out)

    def _take_fragment(self, fragment: ToolFragment, out: list[StreamChunk]) -> None:
        call = self._calls.find(fragment)
        news = call is None
        if call is None:
            call = self._calls.begin(fragment, len(self._open), out)
            self._open.append(call)
        function = fragment.function
        name = scrub_surrogates(function.name) if function and function.name else call.name
        if name != call.name:
            call.name = name
            news = True
        call.send((function.arguments if function else None) or "", out, always=news)

    @override
    def may_end(self) -> bool:
        return bool(self._finish_word)

    @override
    def complete(self, out: list[StreamChunk]) -> None:
        for track in self._open:
            track.flush(out)
        for track in self._open:
            track.close(out)
        reason = self.finishes.completed(self._finish_word, content=bool(self._open))
        self.finish(reason, self._counted(), out)

    @override
    def fail(self, fields: Fields, out: list[StreamChunk]) -> None:
        self._take_usage(read_usage(fields.optional("usage")))
        self.finish(self.finishes.reported(fields.values), self._counted(), out)

    def _counted(self) -> TokenUsage | None:
        return None if self._usage is None else token_usage(self._usage)
