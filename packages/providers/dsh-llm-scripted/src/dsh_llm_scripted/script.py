r"""Scripts as JSON, for the command line and for other languages' tests.

A script is a list. A string names a behaviour; an object says more:

    ["rate_limit",
     {"kind": "text", "text": "Hello", "reasoning": "Greet back."},
     {"kind": "tool-calls", "calls": [{"name": "read", "arguments": {"path": "a.txt"}}]},
     {"kind": "raw", "parts": ["data: [DO", {"data": "NE]\n\n", "pauseMs": 20}]}]
"""

from collections.abc import Sequence

import msgspec

from dsh_llm import StreamChunk

from .chunks import FINISHES, call_chunks, text_chunks
from .completions import Call, FinishWord
from .dialects import Speech
from .replies import Ending, Part, raw_reply
from .server import Step


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    pass


class _Text(_Entry, frozen=True, tag="text"):
    text: str
    reasoning: str = ""
    finish: FinishWord = "stop"


class _Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, object] | str = "{}"
    id: str = ""


class _ToolCalls(_Entry, frozen=True, tag="tool-calls"):
    calls: list[_Call]
    text: str = ""
    reasoning: str = ""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    data: str
    pause_ms: float = 0.0


class _Raw(_Entry, frozen=True, tag="raw"):
    parts: list[str | _Part]
    status: int = 200
    headers: dict[str, str] | None = None
    ending: Ending = "complete"


_Script = list[str | _Text | _ToolCalls | _Raw]


def load_script(data: bytes) -> list[Step]:
    """Read a script; see the module's text for its form.

    Raises:
        ValueError: It is not JSON or not a script; the message holds the path of the fault.
    """
    try:
        entries = msgspec.json.decode(data, type=_Script)
    except msgspec.DecodeError as error:
        raise ValueError(f"not a mock script: {error}") from error
    return [_step(entry) for entry in entries]


def chunk_script(entries: Sequence[object]) -> list[list[StreamChunk]]:
    """Read entries for the scripted adapter: those of kind `text` and `tool-calls`.

    Raises:
        ValueError: An entry has another form; bytes and HTTP faults need the mock server.
    """
    try:
        parsed = msgspec.convert(entries, list[_Text | _ToolCalls])
    except msgspec.ValidationError as error:
        raise ValueError(f"not a script of chunks: {error}") from error
    return [_chunks(entry) for entry in parsed]


def _chunks(entry: _Text | _ToolCalls) -> list[StreamChunk]:
    if isinstance(entry, _Text):
        finish = FINISHES[entry.finish]
        return text_chunks(entry.text, reasoning=entry.reasoning, finish=finish)
    calls = [Call(call.name, call.arguments, call.id) for call in entry.calls]
    return call_chunks(*calls, text=entry.text, reasoning=entry.reasoning)


def _step(entry: str | _Text | _ToolCalls | _Raw) -> Step:
    match entry:
        case str():
            return entry
        case _Text():
            return Speech(text=entry.text, reasoning=entry.reasoning, finish=entry.finish)
        case _ToolCalls():
            calls = tuple(Call(call.name, call.arguments, call.id) for call in entry.calls)
            return Speech(calls=calls, text=entry.text, reasoning=entry.reasoning)
        case _Raw():
            parts = [_part(part) for part in entry.parts]
            return raw_reply(parts, status=entry.status, headers=entry.headers, ending=entry.ending)


def _part(part: str | _Part) -> Part:
    if isinstance(part, str):
        return Part(part.encode())
    return Part(part.data.encode(), part.pause_ms / 1000)
