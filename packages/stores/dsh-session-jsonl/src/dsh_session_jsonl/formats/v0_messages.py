"""Messages of format 0 from before messages had ids, in the wrapper of that time."""

from collections.abc import Iterator
from typing import Final

from dsh_brand import JsonValue
from dsh_session_jsonl.formats.rows import Json, Replace, Row, broken, fields, object_of

_STEP: Final = frozenset({"turn", "step"})


class MessageWrapper:
    """Gives each message of one log the shape of format 1."""

    def __init__(self, session_id: JsonValue) -> None:
        self._session = session_id
        self._results: dict[int, JsonValue] = {}

    def wrap(self, row: Row) -> Row:
        """The row with its message in the shape of format 1.

        Raises:
            BrokenRowError: Half of an old shape.
        """
        match row.type:
            case "steering/message":
                return self._steering(row)
            case "user/message":
                return row._replace(data=self._user(row, fields(row)))
            case "assistant/message":
                return row._replace(data=self._assistant(row, fields(row)))
            case "tool/result":
                return row._replace(data=self._result(row, fields(row)))
            case _:
                return row

    def _steering(self, row: Row) -> Row:
        data = fields(row)
        if data.keys() == {"turn", "message"}:
            message = object_of(row, data["message"], "message")
        elif data.keys() == {"turn", "content", "source"}:
            message = {"content": data["content"], "source": data["source"]}
        else:
            raise broken(row, "it has turn and message, or turn, content and source")
        return row._replace(type="user/message", data=self._user(row, message))

    def _user(self, row: Row, data: Json) -> Json:
        if "id" in data or "role" in data:
            return data
        if data.keys() != {"content", "source"}:
            raise broken(row, "a message without id has content and source, and nothing else")
        return {**data, "role": "user", "id": self._id(row)}

    def _assistant(self, row: Row, data: Json) -> Json:
        if "message" in data:
            _exclude(row, data, "content", "provenance")
            return data
        if not _STEP | {"content", "provenance"} <= data.keys():
            raise broken(row, "it has a message, or content and provenance")
        source = object_of(row, data["provenance"], "provenance")
        message: Json = {
            "role": "assistant",
            "content": data["content"],
            "source": {"kind": "model"} | source | {"kind": "model"},
            "id": self._id(row),
        }
        return dict(_replacing(data, "content", ("provenance",), message))

    def _result(self, row: Row, data: Json) -> Json:
        if "message" in data:
            _exclude(row, data, "callId", "content", "isError")
            message = object_of(row, data["message"], "message")
            self._results[row.seq] = message.get("id")
            return data
        if not _STEP | {"callId", "content", "isError"} <= data.keys():
            raise broken(row, "it has a message, or callId, content and isError")
        identity = self._replaced_id(row) if isinstance(row.op, Replace) else self._id(row)
        self._results[row.seq] = identity
        block: Json = {
            "type": "tool-result",
            "toolCallId": data["callId"],
            "content": data["content"],
            "isError": data["isError"],
        }
        message = {
            "source": {"kind": "tool", "callId": data["callId"]},
            "content": [block],
            "role": "user",
            "id": identity,
        }
        return dict(_replacing(data, "callId", ("content", "isError"), message))

    def _replaced_id(self, row: Row) -> JsonValue:
        start = row.op.start if isinstance(row.op, Replace) else None
        if start not in self._results:
            raise broken(row, f"it replaces seq {start}, which is no tool result")
        return self._results[start]

    def _id(self, row: Row) -> str:
        return f"legacy-message:{self._session}:{row.seq}"


def _exclude(row: Row, data: Json, *keys: str) -> None:
    for key in keys:
        if key in data:
            raise broken(row, f"it has a message, and {key!r} of the shape from before beside it")


def _replacing(
    data: Json, at: str, dropped: tuple[str, ...], message: Json
) -> Iterator[tuple[str, JsonValue]]:
    """The fields with the message where its first part was."""
    for key, value in data.items():
        if key == at:
            yield "message", message
        elif key not in dropped:
            yield key, value
