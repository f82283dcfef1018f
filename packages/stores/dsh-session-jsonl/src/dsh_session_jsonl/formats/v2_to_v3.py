"""Format 2 to 3: the system prompt moves from the request header into the history.

Upstream: packages/session/session-format-v2-to-v3/src/migration.ts.
"""

import hashlib
from collections.abc import Iterator
from typing import Final

from dsh_brand import JsonValue, encode_json
from dsh_session_jsonl.formats.attempts import step_of
from dsh_session_jsonl.formats.messages import messages_of, with_messages
from dsh_session_jsonl.formats.renumbering import Renumbering
from dsh_session_jsonl.formats.rows import (
    Json,
    Replace,
    Row,
    broken,
    cannot,
    fields,
    made,
    object_of,
)

_SURFACE: Final = frozenset({"user/message", "assistant/message", "tool/result"})
_DELIVERY: Final = "session-log-deepseek/delivery-accepted"
_OWNER: Final = "@deepseek-ai/dsh-system-prompt"
_ID_PREFIX: Final = "v2-to-v3-system-"
_RENAMED: Final = {
    "tool/code-dispatch": "tool/ptc-dispatch",
    "tool/code-dispatch-start": "tool/ptc-dispatch-start",
}
_RENAMING: Final = ("user/message", "agent/inbox/spliced", "session/title-llm-request")


class TwoToThree:
    """The edge from format 2 to 3."""

    def __init__(self, header: Json) -> None:
        self._session = header.get("id")
        self._renumbering = Renumbering()
        self._step: tuple[int, int] | None = None
        self._head: int | None = None
        self._prompt = ""
        self._made_ids: set[str] = set()
        self._found_ids: set[str] = set()

    @staticmethod
    def header(header: Json) -> Json:
        """The header in format 3."""
        preset = {"agentPreset": "ptc"} if header.get("agentPreset") == "code" else {}
        return {**header, "version": 3, **preset}

    def push(self, row: Row) -> Iterator[Row]:
        """Convert the next row."""
        if row.foreign:
            yield self._renumbering.place(row)
            return
        self._check(row)
        if row.type == "request/header":
            row, prompt = _without_prompt(row)
            if prompt != self._prompt:
                yield self._system(row, prompt)
        elif row.type in ("step/end", "turn/end"):
            self._step = None
        yield self._renumbering.place(_renamed(row))
        if row.type == "step/start":
            self._step = step_of(row)
            if self._head is None:
                yield self._system(row, "")

    def finish(self) -> Iterator[Row]:
        """Nothing is held back."""
        return iter(())

    def _check(self, row: Row) -> None:
        if row.type in _SURFACE and self._head is None:
            raise cannot(row, "a message stands before the first step, so no prompt can precede it")
        if row.cited == ():
            raise cannot(row, "an empty sourceEventSeqs says nothing that format 3 could say")
        if row.type == "tool/result" and "error" in fields(row) and not _failed(row):
            raise cannot(row, "it has an error, and its result is not marked as one")
        if row.type == _DELIVERY and fields(row).get("sessionFormatVersion") == 3:
            raise cannot(row, "it claims that events of format 3 were delivered")
        for message in messages_of(row):
            identity = message.get("id")
            if isinstance(identity, str) and identity.startswith(_ID_PREFIX):
                self._found_ids.add(identity)
                self._check_collision(row, identity)

    def _check_collision(self, row: Row, identity: str) -> None:
        if identity in self._made_ids and identity in self._found_ids:
            raise cannot(row, f"the message id {identity!r} is the one that a prompt gets")

    def _system(self, anchor: Row, prompt: str) -> Row:
        """The system message that says the prompt from `anchor` on."""
        if self._step is None:
            raise cannot(anchor, "the system prompt changes outside a step")
        turn, step = self._step
        source: Json = {"kind": "plugin", "plugin": _OWNER}
        text: list[JsonValue] = [{"type": "text", "text": prompt}] if prompt else []
        message: Json = {
            "id": self._identity(anchor),
            "role": "system",
            "source": source,
            "content": text,
        }
        row = made(anchor, "system/message", {"turn": turn, "step": step, "message": message})
        if self._head is None:
            row = row._replace(op="append")
        else:
            row = row._replace(op=Replace(self._head, self._head), cited=(self._head,))
        row = self._renumbering.place(row)
        self._head, self._prompt = row.seq, prompt
        return row

    def _identity(self, anchor: Row) -> str:
        facts = ["session-format-v2-to-v3", self._session, anchor.seq, anchor.type]
        identity = _ID_PREFIX + hashlib.sha256(encode_json(facts)).hexdigest()
        self._made_ids.add(identity)
        self._check_collision(anchor, identity)
        return identity


def _failed(row: Row) -> bool:
    message = object_of(row, fields(row).get("message"), "message")
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    return any(isinstance(block, dict) and block.get("isError") is True for block in blocks)


def _without_prompt(row: Row) -> tuple[Row, str]:
    """The header without its prompt and without lists that say nothing, and the prompt."""
    data = fields(row)
    header = object_of(row, data.get("header"), "header")
    prompt = header.get("system", "")
    if not isinstance(prompt, str):
        raise broken(row, "the system prompt must be a string")
    empty: dict[str, JsonValue] = {"tools": [], "adapterDefaults": {}}
    kept = {
        key: value
        for key, value in header.items()
        if key != "system" and (key not in empty or value != empty[key])
    }
    return row._replace(data={**data, "header": kept}), prompt


def _renamed(row: Row) -> Row:
    if row.type in _RENAMING:
        return with_messages(row, _renamed_source)
    if row.type == "agent-preset/selected" and fields(row).get("agentPreset") == "code":
        return row._replace(data={**fields(row), "agentPreset": "ptc"})
    return row._replace(type=_RENAMED.get(row.type, row.type))


def _renamed_source(message: Json) -> Json:
    source = message.get("source")
    if not isinstance(source, dict) or source.get("kind") != "plugin":
        return message
    if source.get("plugin") != "tools-code-mode":
        return message
    return {**message, "source": {**source, "plugin": "tools-ptc"}}
