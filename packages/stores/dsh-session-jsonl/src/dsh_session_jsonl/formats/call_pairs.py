"""Tool calls of a log that was written before pairing was a rule: told, never repaired.

Such a log is opened as it is; requests made from it are put right when they are derived.
"""

from collections.abc import Mapping

from dsh_brand import JsonValue
from dsh_session_jsonl.formats.rows import Row


class CallPairs:
    """Follows the rows of a converted log."""

    def __init__(self) -> None:
        self.broken_at: list[int] = []
        """Where calls and results do not pair: a message that announces an id again before it
        was answered, a result that answers nothing, the end of a step over an open call."""

        self._pending: set[JsonValue] = set()

    def push(self, row: Row) -> None:
        """Take the next row, which is sound by itself."""
        before = len(self._pending)
        if row.type == "assistant/message":
            ids = _announced(_message(row))
            self._pending.update(ids)
            fits = len(self._pending) == before + len(ids)
        elif row.type == "tool/result" and row.op == "append":
            self._pending.discard(_message(row).get("toolCallId"))
            fits = len(self._pending) < before
        elif row.type in ("step/end", "turn/end"):
            self._pending.clear()
            fits = not before
        else:
            return
        if not fits:
            self.broken_at.append(row.seq)


def _message(row: Row) -> Mapping[str, JsonValue]:
    message = row.data.get("message") if isinstance(row.data, Mapping) else None
    return message if isinstance(message, Mapping) else {}


def _announced(message: Mapping[str, JsonValue]) -> list[JsonValue]:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    calls = [b for b in blocks if isinstance(b, Mapping) and b.get("type") == "tool-call"]
    return [call["id"] for call in calls if isinstance(call.get("id"), str)]
