"""Request headers: their canonical form, equality, and the fold of a log to the one in force."""

from collections.abc import Iterable, Mapping, Sequence

from dsh_brand import encode, from_json
from dsh_llm import LlmCallConfig, ToolSchema, call_config_equals
from dsh_session.events import RawData, RequestHeader, RequestHeaderEvent, SessionEvent


def canonical_header(header: RequestHeader) -> RequestHeader:
    """`header` with its config, and adapter defaults and tools where there are any."""
    marks = header.adapter_defaults
    if marks is not None and marks.reasoning_effort is None and marks.max_tokens is None:
        marks = None
    tools = header.tools or None
    if header.extra is None and marks is header.adapter_defaults and tools is header.tools:
        return header
    return RequestHeader(config=header.config, adapter_defaults=marks, tools=tools)


def header_equals(left: RequestHeader, right: RequestHeader) -> bool:
    """Whether two headers ask for the same, byte for byte where a provider's cache sees bytes."""
    if left is right:
        return True
    return (
        call_config_equals(left.config, right.config)
        and _marks(left) == _marks(right)
        and _tools_equal(left.tools or (), right.tools or ())
    )


def same_tool(left: ToolSchema, right: ToolSchema) -> bool:
    """Whether two definitions serialize to the same text, the order of keys included."""
    return left is right or (left.name == right.name and encode(left) == encode(right))


def header_of(event: SessionEvent) -> RequestHeader | None:
    """The header that an event records; `None` for any other event.

    Of a header whose tools are no list of definitions the rest is kept.
    """
    data = event.data
    if isinstance(data, RequestHeaderEvent):
        return data.header
    if event.type != RequestHeaderEvent.type or not isinstance(data, RawData):
        return None
    header = data.json.get("header") if isinstance(data.json, Mapping) else None
    if not isinstance(header, Mapping):
        return None
    try:
        return RequestHeader(config=from_json(LlmCallConfig, header.get("config")))
    except ValueError:
        return None


def fold_request_header(
    events: Iterable[SessionEvent], start: RequestHeader | None = None
) -> RequestHeader | None:
    """The last header in canonical form; `start` itself if there is none. Nothing is merged."""
    last = None
    for event in events:
        last = header_of(event) or last
    return start if last is None else canonical_header(last)


def _marks(header: RequestHeader) -> tuple[bool, bool]:
    marks = header.adapter_defaults
    return (
        (False, False) if marks is None else (bool(marks.reasoning_effort), bool(marks.max_tokens))
    )


def _tools_equal(left: Sequence[ToolSchema], right: Sequence[ToolSchema]) -> bool:
    return len(left) == len(right) and all(map(same_tool, left, right))
