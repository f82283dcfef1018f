"""Format 3 to 4: tool results are messages of their own role, sources name their producer.

Upstream: packages/session/session-format-v3-to-v4/src/migration.ts.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from dsh_brand import JsonValue
from dsh_session_jsonl.formats.messages import with_messages
from dsh_session_jsonl.formats.renumbering import REFERENCES, Path, Renumbering
from dsh_session_jsonl.formats.restart import RestartRepair
from dsh_session_jsonl.formats.rows import Json, Row, broken, cannot, fields, object_of
from dsh_session_jsonl.formats.v4_sources import native_blocks, native_message, native_record

_REFERENCES: Final[Mapping[str, tuple[Path, ...]]] = {
    **REFERENCES,
    "image/offload": (("targets", "*", "seq"),),
    "developer/message": (("headerSeq",),),
}
_WRAPPER: Final = frozenset({"type", "toolCallId", "content", "isError"})
_OUTER: Final = frozenset({"role", "source", "content", "id"})


class ThreeToFour:
    """The edge from format 3 to 4."""

    def __init__(self, header: Json) -> None:
        self._renumbering = Renumbering(_REFERENCES)
        self._restart = RestartRepair()

    @staticmethod
    def header(header: Json) -> Json:
        """The header in format 4."""
        return {**header, "version": 4}

    def push(self, row: Row) -> Iterator[Row]:
        """Convert the next row."""
        end = self._restart.before(row)
        if end is not None:
            yield self._renumbering.place(end)
        yield self._renumbering.place(row if row.foreign else _converted(row))

    def finish(self) -> Iterator[Row]:
        """Nothing is held back."""
        return iter(())


def _converted(row: Row) -> Row:
    match row.type:
        case "tool/result":
            return _result(row)
        case "request/header":
            _check_tools(row)
        case "session-log-deepseek/delivery-accepted":
            if fields(row).get("sessionFormatVersion") == 4:
                raise cannot(row, "it claims that events of format 4 were delivered")
        case "assistant/attempt":
            return _with_stream(row)
        case "assistant/message":
            row = _with_stream(row)
        case _:
            pass
    return with_messages(row, partial(native_message, row))


def _result(row: Row) -> Row:
    data = fields(row)
    message = object_of(row, data.get("message"), "message")
    source = object_of(row, message.get("source"), "the source of the message")
    block = _wrapper(row, message, source)
    if not isinstance(block["content"], list):
        raise cannot(row, "the content of the result must be a list of blocks")
    native: Json = {
        "role": "tool",
        "source": source,
        "toolCallId": block["toolCallId"],
        "content": native_blocks(row, block["content"]),
    }
    if "isError" in block:
        native["isError"] = block["isError"]
    if "id" in message:
        native["id"] = message["id"]
    native.update(_foreign("result", block, _WRAPPER))
    native.update(_foreign("message", message, _OUTER))
    return row._replace(data={**data, "message": native})


def _wrapper(row: Row, message: Json, source: Json) -> Json:
    """The one block that holds the result."""
    content = message.get("content")
    if message.get("role") != "user" or source.get("kind") != "tool":
        raise cannot(row, "its message must have role 'user' and source 'tool'")
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        raise cannot(row, "its message must hold exactly one tool-result block")
    block = content[0]
    if block.get("type") != "tool-result" or "content" not in block:
        raise cannot(row, "its message must hold exactly one tool-result block")
    call = source.get("callId")
    if not isinstance(call, str) or block.get("toolCallId") != call:
        raise cannot(row, "its block and its source must name the same call")
    if type(block.get("isError", False)) is not bool:
        raise cannot(row, f"isError must be a boolean, not {block['isError']!r}")
    return block


def _foreign(place: str, value: Json, known: frozenset[str]) -> Json:
    return {f"plugin:{place}:{key}": item for key, item in value.items() if key not in known}


def _check_tools(row: Row) -> None:
    tools = object_of(row, fields(row).get("header"), "header").get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and "deferLoading" in tool:
            raise cannot(row, f"the tool {tool.get('name')!r} was to be loaded later")


def _with_stream(row: Row) -> Row:
    data = fields(row)
    stream: JsonValue = data.get("stream")
    if not isinstance(stream, list):
        raise broken(row, "a settled attempt has a stream")
    return row._replace(data={**data, "stream": [native_record(row, item) for item in stream]})
