"""Open blocks of a response: what this protocol knows of them beyond their text."""

from contextlib import suppress

import msgspec
from typing_extensions import override

from dsh_brand import JsonObject, decode_json, encode_json, scrub_surrogates
from dsh_llm import CallId, StreamChunk
from dsh_llm_http.tracks import CallTrack, TextTrack

from . import replay


class ThinkingTrack(TextTrack):
    """A thinking block, or one whose text the provider hides."""

    __slots__ = ("redacted", "signature")

    def __init__(self, index: int, redacted: str | None, out: list[StreamChunk]) -> None:
        super().__init__("reasoning", index, out)
        self.redacted = redacted
        """What the provider gave in place of the text."""
        self.signature = ""


class InputTrack(CallTrack):
    """A tool call whose whole input may stand at its start."""

    __slots__ = ("_input",)

    def __init__(
        self,
        index: int,
        call_id: CallId,
        name: str,
        given_input: msgspec.Raw,
        out: list[StreamChunk],
    ) -> None:
        super().__init__(index, call_id, name, out)
        self._input = given_input
        self.send("", out, always=True)

    @override
    def close(self, out: list[StreamChunk]) -> None:
        self.flush(out)
        if not self.text():
            self.send(_compact(self._input), out)
        super().close(out)


Track = TextTrack | InputTrack


def entry(track: Track) -> JsonObject:
    """The entry of a block in the replay state."""
    match track:
        case ThinkingTrack(signature=signature, redacted=redacted):
            return replay.reasoning_entry(signature, redacted)
        case TextTrack():
            return replay.text_entry()
        case InputTrack():
            return replay.call_entry()


def _compact(given: msgspec.Raw) -> str:
    text = bytes(given).decode("utf-8", "replace")
    if text in {"", "null"}:
        return "{}"
    with suppress(ValueError):  # numbers beyond JSON's are not ours to change: the tool judges them
        text = encode_json(decode_json(text)).decode()
    return scrub_surrogates(text)
