"""Chunks of one model attempt as the records of a compact stream.

The same rules as the live accumulator has, frozen: what format 2 stored does not change.
"""

from typing import Final

from dsh_brand import JsonValue
from dsh_session_jsonl.formats.rows import MAX_SAFE_INT, Json

_TEXT_RUNS: Final = {"text-delta": "text-chunks", "reasoning-delta": "reasoning-chunks"}
_TEXT_KEYS: Final = {"type", "index", "text"}
_TOOL_KEYS: Final = {"type", "index", "id", "argumentsDelta"}


class StreamPacker:
    """Collects chunks in order; a delta joins the record before it where it continues it."""

    def __init__(self) -> None:
        self.records: list[JsonValue] = []
        self._head: Json = {}
        self._gaps: list[JsonValue] = []
        self._members: list[JsonValue] = []
        self._last = 0

    def push(self, time: int, chunk: Json) -> None:
        """Take the next chunk with its time of arrival."""
        head, member = _text_delta(chunk) or _tool_delta(chunk) or ({}, "")
        if not head:
            self._head = {}
            self.records.append({"type": "chunk", "time": time, "chunk": chunk})
            return
        gap = time - self._last
        if head == self._head and abs(gap) <= MAX_SAFE_INT:
            self._gaps.append(gap)
            self._members.append(member)
        else:
            self._open(time, head, member)
        self._last = time

    def _open(self, time: int, head: Json, member: str) -> None:
        self._head, self._gaps, self._members = head, [], [member]
        rest = {key: value for key, value in head.items() if key not in ("type", "index", "into")}
        self.records.append(
            {
                "type": head["type"],
                "time0": time,
                "index": head["index"],
                "dt": self._gaps,
                **rest,
                str(head["into"]): self._members,
            }
        )


def _text_delta(chunk: Json) -> tuple[Json, str] | None:
    run = _TEXT_RUNS.get(str(chunk.get("type")))
    text = chunk.get("text")
    if run is None or chunk.keys() != _TEXT_KEYS or not _is_index(chunk["index"]):
        return None
    if not isinstance(text, str):
        return None
    return {"type": run, "index": chunk["index"], "into": "texts"}, text


def _tool_delta(chunk: Json) -> tuple[Json, str] | None:
    if chunk.get("type") != "tool-call-delta" or chunk.keys() - {"name"} != _TOOL_KEYS:
        return None
    names: Json = {}
    names.update((key, chunk[key]) for key in ("id", "name") if key in chunk)
    member = chunk["argumentsDelta"]
    if not _is_index(chunk["index"]) or not isinstance(member, str):
        return None
    if not all(isinstance(name, str) and name for name in names.values()):
        return None
    head: Json = {"type": "tool-call-chunks", "index": chunk["index"], "into": "args"}
    return {**head, **names}, member


def _is_index(value: JsonValue) -> bool:
    return type(value) is int and 0 <= value <= MAX_SAFE_INT
