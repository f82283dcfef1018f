"""Whatever JSON an event holds comes back equal, by every way (S23-S30, S174)."""

from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from dsh_brand import JsonValue, json_equal
from dsh_session import (
    Session,
    SessionEvent,
    SessionHeader,
    SessionId,
    ToolResultEvent,
    decode_event,
    encode_event,
    event_from_json,
    event_to_json,
)
from dsh_session.testing import new_session, tool_message

NUMBERS = st.one_of(
    st.integers(-(2**53) + 1, 2**53 - 1),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: str(number) != "-0.0"),
)
TEXT = st.text(st.characters())  # lone surrogates among them
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(TEXT, inner, max_size=4),
    ),
    max_leaves=20,
)
TAGGED = st.dictionaries(TEXT, JSON, max_size=3)


def agrees(event: SessionEvent, value: object) -> None:
    again = decode_event(encode_event(event))
    assert json_equal(event_to_json(again), event_to_json(event))
    assert encode_event(again) == encode_event(event)
    assert json_equal(event_to_json(event_from_json(event_to_json(event))), event_to_json(event))
    header = SessionHeader(id=SessionId("test"), created_at=0)
    copy = Session.from_restore(header.id, [again], header)
    assert json_equal(event_to_json(copy.events[0])["data"], cast("JsonValue", value))


@given(JSON)
def test_S23_S174_raw_data_is_lossless(value: object) -> None:
    agrees(new_session().append("test/raw", value), value)


@given(JSON, TAGGED, TAGGED)
def test_S174_typed_payloads_keep_unknown_fields_blocks_and_sources(
    meta: object, block: dict[str, object], more: dict[str, object]
) -> None:
    message = cast("dict[str, object]", event_to_json(_result(meta))["data"])["message"]
    assert isinstance(message, dict)
    stored: dict[str, object] = {
        **{f"x{key}": value for key, value in more.items()},
        "turn": 1,
        "step": 1,
        "meta": meta,
        "message": {**message, "content": [{**block, "type": "new-block"}]},
    }
    row = {"type": "tool/result", "seq": 0, "time": 0, "data": stored, "surfaceOp": "append"}
    agrees(event_from_json(row), stored)


def _result(meta: object) -> SessionEvent:
    data = ToolResultEvent(turn=1, step=1, message=tool_message("c"), meta=cast("JsonValue", meta))
    return new_session().append(data, surface_op="append")
