"""Replies in the chat-completions streaming dialect."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from .replies import Ending, Part, Reply

FinishWord = Literal["stop", "tool_calls", "length", "content_filter"]
USAGE: Mapping[str, object] = {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}
DONE = b"data: [DONE]\n\n"
_IDENTITY = {"id": "chatcmpl-mock", "object": "chat.completion.chunk", "created": 0}


class Call(msgspec.Struct, frozen=True):
    """A tool call that the scripted model makes."""

    name: str
    arguments: Mapping[str, object] | str = "{}"
    """Text is sent as it is, so that a script can hold invalid JSON."""
    id: str = ""
    """Empty: numbered by the reply, `call_1`, `call_2`, ..."""

    def text(self) -> str:
        """The arguments as the model writes them."""
        if isinstance(self.arguments, str):
            return self.arguments
        return msgspec.json.encode(self.arguments).decode()


def event(payload: object) -> bytes:
    """One server-sent event that holds the payload as JSON."""
    return b"data: " + msgspec.json.encode(payload) + b"\n\n"


def delta_event(delta: Mapping[str, object], finish: str | None = None) -> bytes:
    """One event with a delta of choice 0."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return event({**_IDENTITY, "model": "mock", "choices": [choice]})


def usage_event(usage: Mapping[str, object]) -> bytes:
    """The event without choices that carries the usage."""
    return event({**_IDENTITY, "model": "mock", "choices": [], "usage": usage})


def opening() -> bytes:
    """The event that names the role and holds no text."""
    return delta_event({"role": "assistant", "content": ""})


def closing(finish: str, usage: Mapping[str, object] | None = USAGE) -> list[bytes]:
    """Finish word, usage and end mark."""
    tail = [delta_event({}, finish)]
    if usage is not None:
        tail.append(usage_event(usage))
    return [*tail, DONE]


def text_events(texts: str | Sequence[str], field: str = "content") -> list[bytes]:
    """One event per text; a single string is cut after each space."""
    return [delta_event({field: piece}) for piece in words(texts)]


def call_events(calls: Sequence[Call]) -> list[bytes]:
    """Each call as services stream it: id and name first, the arguments in two halves."""
    events: list[bytes] = []
    for index, call in enumerate(calls):
        text = call.text()
        half = len(text) // 2
        head: dict[str, object] = {
            "index": index,
            "id": call.id or f"call_{index + 1}",
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }
        events.append(delta_event({"tool_calls": [head]}))
        for piece in (text[:half], text[half:]):
            if piece:
                tail = {"index": index, "function": {"arguments": piece}}
                events.append(delta_event({"tool_calls": [tail]}))
    return events


def stream_reply(
    events: Iterable[bytes], *, name: str = "stream", ending: Ending = "complete"
) -> Reply:
    """A stream of ready-made events."""
    return Reply(name=name, parts=tuple(Part(data) for data in events), ending=ending)


def text_reply(
    text: str | Sequence[str],
    *,
    reasoning: str = "",
    finish: FinishWord = "stop",
    usage: Mapping[str, object] | None = USAGE,
    name: str = "success",
) -> Reply:
    """A model that answers in words, after it thought if `reasoning` is given."""
    thought = text_events(reasoning, "reasoning_content") if reasoning else []
    events = [opening(), *thought, *text_events(text), *closing(finish, usage)]
    return stream_reply(events, name=name)


def tool_call_reply(
    *calls: Call,
    text: str | Sequence[str] = "",
    reasoning: str = "",
    finish: FinishWord = "tool_calls",
    usage: Mapping[str, object] | None = USAGE,
) -> Reply:
    """A model that calls tools, after some words if `text` is given."""
    thought = text_events(reasoning, "reasoning_content") if reasoning else []
    said = text_events(text) if text else []
    events = [opening(), *thought, *said, *call_events(calls), *closing(finish, usage)]
    return stream_reply(events, name="tool_call_success")


def words(texts: str | Sequence[str]) -> Sequence[str]:
    """The pieces that a script streams: as given, or a string cut after each space."""
    if not isinstance(texts, str):
        return texts
    pieces = texts.split(" ")
    return [piece + " " for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])
