"""Where the messages of a log stand: the same five places in every old format."""

from collections.abc import Callable, Iterator

from dsh_session_jsonl.formats.rows import Json, Row, broken, fields, object_of


def messages_of(row: Row) -> Iterator[Json]:
    """The messages that a row holds.

    Raises:
        BrokenRowError: There is something else in the place of one.
    """
    found: list[Json] = []

    def note(message: Json) -> Json:
        found.append(message)
        return message

    with_messages(row, note)
    return iter(found)


def with_messages(row: Row, change: Callable[[Json], Json]) -> Row:
    """The row with each of its messages changed.

    Raises:
        BrokenRowError: There is something else in the place of one.
    """
    match row.type:
        case "user/message":
            return row._replace(data=change(fields(row)))
        case "assistant/message" | "system/message" | "developer/message" | "tool/result":
            data = fields(row)
            message = object_of(row, data.get("message"), "message")
            return row._replace(data={**data, "message": change(message)})
        case "agent/inbox/spliced":
            return _listed(row, "inserted", change)
        case "session/title-llm-request":
            return _listed(row, "messages", change)
        case _:
            return row


def _listed(row: Row, key: str, change: Callable[[Json], Json]) -> Row:
    data = fields(row)
    if key not in data:
        return row
    messages = data[key]
    if not isinstance(messages, list):
        raise broken(row, f"{key} must be a list of messages")
    changed = [change(object_of(row, message, key)) for message in messages]
    return row._replace(data={**data, key: changed})
