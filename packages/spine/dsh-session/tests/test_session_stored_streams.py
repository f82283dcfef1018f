"""Streams of stored attempts stay text until somebody reads them (S14, S21, S36, S120, S169)."""

import copy
import pickle
import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_brand.wire import UnreadArray
from dsh_llm import (
    AssistantStreamAccumulator,
    BlockStart,
    FinishChunk,
    StopFinish,
    StreamChunk,
    StreamRecord,
    TextDelta,
    expand_assistant_stream,
)
from dsh_llm.records import OpaqueRecord
from dsh_session import (
    AssistantAttempt,
    InvalidEventError,
    Session,
    SessionEvent,
    decode_stored_event,
    encode_event,
    event_from_json,
    event_to_json,
)
from dsh_session.testing import append_turn, new_session

CHUNKS: list[StreamChunk] = [
    BlockStart(0, "text"),
    TextDelta(0, "Hel"),
    TextDelta(0, "lö 😀"),
    FinishChunk(StopFinish()),
]


def stored(chunks: Sequence[StreamChunk]) -> SessionEvent:
    stream = AssistantStreamAccumulator()
    for time, chunk in enumerate(chunks):
        stream.push(time, chunk)
    return new_session().append(AssistantAttempt(turn=1, step=1, stream=stream.snapshot()))


def row(stream: bytes) -> bytes:
    return (
        b'{"type":"assistant/attempt","seq":0,"time":0,"data":{"turn":1,"step":1,"stream":%s}}'
        % stream
    )


def stream_of(event: SessionEvent) -> Sequence[StreamRecord]:
    assert isinstance(event.data, AssistantAttempt)
    return event.data.stream


def test_S169_a_stored_stream_is_text_and_equals_what_was_written() -> None:
    event = stored(CHUNKS)
    read = decode_stored_event(encode_event(event))
    stream = stream_of(read)
    assert isinstance(stream, UnreadArray)
    assert (read, event) == (event, read)
    assert hash(stream) == hash(stream_of(event))
    assert [chunk for _, chunk in expand_assistant_stream(stream)] == CHUNKS
    assert encode_event(read) == encode_event(event)
    assert event_to_json(read) == event_to_json(event)
    assert event_from_json(event_to_json(read)) == event


@given(st.lists(st.one_of(st.builds(TextDelta, st.integers(0, 2), st.text(st.characters())))))
def test_S21_S174_any_stream_comes_back(chunks: list[StreamChunk]) -> None:
    event = stored(chunks)
    read = decode_stored_event(encode_event(event))
    assert read == event
    assert [chunk for _, chunk in expand_assistant_stream(stream_of(read))] == chunks
    assert encode_event(read) == encode_event(event)


@pytest.mark.parametrize(
    "stream",
    [
        b'[{"type":"chunk"',
        b'[{"type":"chunk"},]',
        b'[{"type":"chunk" "time":1}]',
        b'[{"type":"text-chunks","texts":["\\q"]}]',
        b'[{"type":"text-chunks","texts":["\x01"]}]',
        b'[{"type":"text-chunks","texts":["\xff"]}]',
        b'[{"type":"text-chunks","texts":["\xc3"]}]',
        b'[{"type":"text-chunks","dt":[NaN]}]',
        b'[{"type":"text-chunks","dt":[01]}]',
        b'{"type":"chunk"}',
        b"null",
        b'"[]"',
    ],
)
def test_S120_damage_inside_a_stream_is_found_when_the_row_is_read(stream: bytes) -> None:
    plain = row(stream)
    answer = plain.replace(b"assistant/attempt", b"assistant/message").replace(
        b'"stream"',
        b'"message":{"id":"m","role":"assistant","content":[],'
        b'"source":{"kind":"model","provider":"p","model":"m"}},"stream"',
    )
    with pytest.raises(InvalidEventError):
        decode_stored_event(answer.replace(b"}}", b'},"surfaceOp":"append"}'))
    try:
        event = decode_stored_event(plain)
    except InvalidEventError:
        return
    # Sound JSON that is no array: a log-only event keeps it as it is.
    assert not isinstance(event.data, AssistantAttempt)


@pytest.mark.parametrize(
    "stream",
    [
        b"[1,null,[]]",
        b'[{"type":"later","n":1e+21}]',
        b'[{"type":"text-chunks","time0":"x"},{"type":"later"}]',
        b"[" + b"[" * 400 + b"]" * 400 + b"]",
    ],
)
def test_S14_records_are_not_judged_and_are_written_back_as_they_were(stream: bytes) -> None:
    event = decode_stored_event(row(stream))
    assert encode_event(event) == row(stream)
    records = list(stream_of(event))
    assert records
    assert all(isinstance(record, OpaqueRecord) for record in records)
    assert decode_stored_event(encode_event(event)) == event


def test_S29_a_record_with_a_number_that_no_double_holds_has_a_place() -> None:
    event = decode_stored_event(row(b'[{"type":"chunk","time":1e999},{"type":"later"}]'))
    assert list(stream_of(event)) == [OpaqueRecord(), OpaqueRecord(extra={"type": "later"})]
    assert event_to_json(event)["data"] == {"turn": 1, "step": 1, "stream": [{}, {"type": "later"}]}


def test_S26_half_characters_in_a_stream_survive() -> None:
    event = stored([TextDelta(0, "a\ud83d"), TextDelta(1, "\udc00")])
    read = decode_stored_event(encode_event(event))
    assert read == event
    assert encode_event(read) == encode_event(event)


def test_S36_a_stored_stream_cannot_be_changed() -> None:
    stream = stream_of(decode_stored_event(encode_event(stored(CHUNKS))))
    with pytest.raises(TypeError):
        stream[0] = stream[1]  # type: ignore[index]  # what is tested
    for name in ("text", "items", "more"):
        with pytest.raises(AttributeError):
            setattr(stream, name, ())
    assert stream[1:] == tuple(stream)[1:]
    assert copy.deepcopy(stream) == stream == pickle.loads(pickle.dumps(stream))  # ours


def test_S51_S80_a_seed_from_a_store_is_taken_over_as_it_is() -> None:
    session = new_session()
    append_turn(session, 1)
    rows = [encode_event(event) for event in (*session.events, stored(CHUNKS))]
    events = [decode_stored_event(line) for line in rows[:-1]]
    fork = Session.create(session.id, events)
    assert list(fork.events[: len(events)]) == list(session.events)
    assert all(ours is theirs for ours, theirs in zip(fork.events, events, strict=False))


def test_S169_a_chunk_takes_at_most_120_bytes_beyond_its_text() -> None:
    chunks, size = 2_000, 10
    line = encode_event(stored([TextDelta(0, "x" * size)] * chunks))
    decode_stored_event(line)
    tracemalloc.start()
    try:
        event = decode_stored_event(line)
        unread, _ = tracemalloc.get_traced_memory()
        assert len(list(expand_assistant_stream(stream_of(event)))) == chunks
        read, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert unread < len(line) + 2_000
    assert read < chunks * (size + 120)
