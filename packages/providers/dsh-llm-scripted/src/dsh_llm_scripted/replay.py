"""A script from a session log: what models once answered, answered again."""

from collections.abc import Iterable, Mapping

from dsh_brand import JsonValue
from dsh_llm import StreamChunk, expand_assistant_stream

_ATTEMPTS = ("assistant/message", "assistant/attempt")


def script_from_log(events: Iterable[Mapping[str, JsonValue]]) -> list[list[StreamChunk]]:
    """One entry for each model attempt of a log, in its order.

    Args:
        events: The events of a log as JSON objects; all but the attempts are passed over, and a
            chunk of a type that this build does not know is left out.

    Raises:
        ValueError: An attempt holds no stream, or a broken one; the message names its `seq`.
    """
    return [_entry(event) for event in events if event.get("type") in _ATTEMPTS]


def _entry(event: Mapping[str, JsonValue]) -> list[StreamChunk]:
    data = event.get("data")
    records = data.get("stream") if isinstance(data, Mapping) else None
    if not isinstance(records, list | tuple):
        raise ValueError(f"event {event.get('seq')!r} holds no stream to replay")
    try:
        timed = list(expand_assistant_stream(_objects(records)))
    except ValueError as error:
        raise ValueError(f"event {event.get('seq')!r}: {error}") from error
    return [chunk for _, chunk in timed if isinstance(chunk, StreamChunk)]


def _objects(records: Iterable[JsonValue]) -> Iterable[Mapping[str, JsonValue]]:
    for record in records:
        if not isinstance(record, Mapping):
            raise ValueError(f"a stream record is an object, not {type(record).__name__}")
        yield record
