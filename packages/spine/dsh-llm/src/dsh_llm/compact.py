"""Reads compact streams: expansion, assembly, and questions answered from the records.

Expansion is the one path that validates. All others trust the records, as the log that holds them
was checked when it was written.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal, NoReturn, TypeAlias, cast

from dsh_brand import MAX_SAFE_INT, JsonValue, from_json, is_blank, pair_surrogates, to_json
from dsh_llm.assembler import BlockAssembler
from dsh_llm.chunks import (
    BlockEnd,
    BlockStart,
    Chunk,
    FinishChunk,
    ReasoningDelta,
    StoredChunk,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
    chunk_has_visible_text,
    is_token_delta,
    is_visible_chunk,
)
from dsh_llm.records import (
    RawChunk,
    ReasoningChunks,
    Run,
    StreamRecord,
    StreamRecordBase,
    TextChunks,
    TimedStoredChunk,
    ToolCallChunks,
)

AnyRecord: TypeAlias = StreamRecord | Mapping[str, JsonValue]
"""A record, or its JSON as a log holds it."""

RawType: TypeAlias = Literal["block-start", "block-end", "usage", "finish"]

_RAW_TYPES: Final[Mapping[str, type[Chunk]]] = {
    "block-start": BlockStart,
    "block-end": BlockEnd,
    "usage": UsageChunk,
    "finish": FinishChunk,
}
_TEXT_KEYS: Final = frozenset({"type", "time0", "index", "dt", "texts"})
_CALL_KEYS: Final = frozenset({"type", "time0", "index", "dt", "id", "args"})
_RAW_KEYS: Final = frozenset({"type", "time", "chunk"})
_KEYS: Final[Mapping[object, frozenset[str]]] = {
    "text-chunks": _TEXT_KEYS,
    "reasoning-chunks": _TEXT_KEYS,
    "tool-call-chunks": _CALL_KEYS,
    "chunk": _RAW_KEYS,
}


def expand_assistant_stream(records: Iterable[AnyRecord]) -> Iterator[TimedStoredChunk]:
    """The exact sequence of chunks with their times.

    Raises:
        ValueError: A record is not what packing makes; the message names its position.
    """
    for position, record in enumerate(records):
        yield from _expand(_checked(record, position), position)


def _checked(record: AnyRecord, position: int) -> Run | RawChunk:
    value = to_json(record) if isinstance(record, StreamRecordBase) else record
    if not isinstance(value, Mapping):
        _fail(position, f"{value!r:.80} is no record")
    kind = value.get("type")
    keys = _KEYS.get(kind) if isinstance(kind, str) else None
    if keys is None:
        _fail(position, f"unknown record type {kind!r:.80}")
    given = frozenset(value)
    if missing := keys - given:
        _fail(position, f"{kind} lacks {', '.join(sorted(missing))}")
    optional = {"name"} if kind == "tool-call-chunks" else set()
    if surplus := given - keys - optional:
        _fail(position, f"{kind} has the unknown key {', '.join(sorted(surplus))}")
    _check_values(value, position)
    if isinstance(record, StreamRecordBase):
        return cast("Run | RawChunk", record)
    try:
        return cast("Run | RawChunk", from_json(StreamRecordBase, value))
    except ValueError as error:
        _fail(position, str(error))


def _check_values(value: Mapping[str, JsonValue], position: int) -> None:
    if value["type"] == "chunk":
        _check_integer(value["time"], position, "time")
        _check_chunk(value["chunk"], position)
        return
    _check_integer(value["index"], position, "index", low=0)
    for key in ("id", "name"):
        if key in value and (type(value[key]) is not str or not value[key]):
            _fail(position, f"{key} {value[key]!r:.80} is not a non-empty string")
    _check_members(value, position)


def _check_chunk(chunk: JsonValue, position: int) -> None:
    if not isinstance(chunk, Mapping) or not isinstance(chunk.get("type"), str):
        _fail(position, f"{chunk!r:.80} is no chunk")
    if "index" in chunk and chunk["type"] in _INDEXED:
        _check_integer(chunk["index"], position, "index", low=0)


_INDEXED: Final = frozenset(
    {"block-start", "text-delta", "reasoning-delta", "tool-call-delta", "block-end"}
)


def _check_members(value: Mapping[str, JsonValue], position: int) -> None:
    key = "args" if value["type"] == "tool-call-chunks" else "texts"
    members, gaps = value[key], value["dt"]
    if not isinstance(members, list | tuple) or not isinstance(gaps, list | tuple):
        _fail(position, f"dt and {key} are not both arrays")
    if not members:
        _fail(position, "a run has at least one member")
    if len(gaps) != len(members) - 1:
        _fail(position, f"{len(gaps)} gaps do not fit {len(members)} members")
    for member in members:
        if type(member) is not str:
            _fail(position, f"member {member!r:.80} is not a string")
    time = _check_integer(value["time0"], position, "time0")
    for gap in gaps:
        time += _check_integer(gap, position, "gap")
        _check_integer(time, position, "member time")


def _check_integer(value: JsonValue, position: int, what: str, *, low: int = -MAX_SAFE_INT) -> int:
    if isinstance(value, float) and value.is_integer() and str(value) != "-0.0":
        value = int(value)
    if type(value) is not int or not low <= value <= MAX_SAFE_INT:
        _fail(position, f"{what} {value!r:.80} is not an integer in {low}..2^53-1")
    return value


def _fail(position: int, problem: str) -> NoReturn:
    raise ValueError(f"record {position} of the stream: {problem}")


def _expand(record: Run | RawChunk, position: int) -> Iterator[TimedStoredChunk]:
    if isinstance(record, RawChunk):
        yield TimedStoredChunk(record.time, record.chunk)
        return
    for time, member in zip(_times(record), _members(record), strict=True):
        yield TimedStoredChunk(time, _delta(record, member))


def _times(run: Run) -> Iterator[int]:
    time = run.time0
    yield time
    for gap in run.dt:
        time += gap
        yield time


def _members(run: Run) -> tuple[str, ...]:
    return run.args if isinstance(run, ToolCallChunks) else run.texts


def _delta(run: Run, member: str) -> TextDelta | ReasoningDelta | ToolCallDelta:
    match run:
        case TextChunks(index=index):
            return TextDelta(index, member)
        case ReasoningChunks(index=index):
            return ReasoningDelta(index, member)
        case ToolCallChunks(index=index, id=call_id, name=name):
            return ToolCallDelta(index=index, id=call_id, name=name, arguments_delta=member)


def assemble_assistant_stream(
    records: Iterable[AnyRecord], assembler: BlockAssembler | None = None
) -> BlockAssembler:
    """Fold a stream into an assembler by one joined delta per run; trusts its input."""
    folded = BlockAssembler() if assembler is None else assembler
    for record in _known(records):
        if isinstance(record, RawChunk):
            folded.push(record.chunk)
        else:
            folded.push(_delta(record, "".join(_members(record))))
    return folded


def _known(records: Iterable[AnyRecord]) -> Iterator[Run | RawChunk]:
    """The records that this build knows, without looking into them."""
    for record in records:
        known = (
            record if isinstance(record, StreamRecordBase) else from_json(StreamRecordBase, record)
        )
        if isinstance(known, TextChunks | ReasoningChunks | ToolCallChunks | RawChunk):
            yield known


def run_first_token_time(run: Run) -> int | None:
    """When the first token of a run came; `None` if it holds none."""
    if isinstance(run, ToolCallChunks) and run.name is not None:
        return run.time0
    return next((time for time, text in zip(_times(run), _members(run), strict=True) if text), None)


def run_first_visible_time(run: Run) -> int | None:
    """When the first visible text of a run came; `None` if it holds none, or is of a tool call."""
    if isinstance(run, ToolCallChunks):
        return None
    pairs = zip(_times(run), run.texts, strict=True)
    return next((time for time, text in pairs if not is_blank(text)), None)


def assistant_stream_first_token_time(records: Iterable[AnyRecord]) -> int | None:
    """When the first token of a stream came; `None` if it holds none."""
    for record in _known(records):
        if not isinstance(record, RawChunk):
            time = run_first_token_time(record)
            if time is not None:
                return time
        elif is_token_delta(record.chunk):
            return record.time
    return None


def assistant_stream_has_visible_content(records: Iterable[AnyRecord]) -> bool:
    """Whether anything of a stream shows to a person."""
    return any(
        is_visible_chunk(record.chunk)
        if isinstance(record, RawChunk)
        else run_first_visible_time(record) is not None
        for record in _known(records)
    )


def assistant_stream_has_visible_text(records: Iterable[AnyRecord]) -> bool:
    """Whether text of the answer itself shows to a person."""
    for record in _known(records):
        if isinstance(record, RawChunk):
            if chunk_has_visible_text(record.chunk):
                return True
        elif isinstance(record, TextChunks) and not all(map(is_blank, record.texts)):
            return True
    return False


def last_assistant_stream_chunk(records: Sequence[AnyRecord], kind: RawType) -> StoredChunk | None:
    """The last chunk of a type that joins no run, searched from the end.

    Raises:
        ValueError: `kind` is a type of delta.
    """
    return next(_of_kind(reversed(records), kind), None)


def assistant_stream_chunks(records: Iterable[AnyRecord], kind: RawType) -> list[StoredChunk]:
    """All chunks of a type that joins no run, in order.

    Raises:
        ValueError: `kind` is a type of delta.
    """
    return list(_of_kind(records, kind))


def _of_kind(records: Iterable[AnyRecord], kind: str) -> Iterator[StoredChunk]:
    cls = _RAW_TYPES.get(kind)
    if cls is None:
        raise ValueError(f"{kind!r} chunks join runs: ask for one of {', '.join(_RAW_TYPES)}")
    return (
        record.chunk
        for record in _known(records)
        if isinstance(record, RawChunk) and isinstance(record.chunk, cls)
    )


def join_assistant_stream_text(records: Iterable[AnyRecord]) -> str:
    """The text deltas of a stream, joined; no reasoning, and nothing of block ends."""
    parts: list[str] = []
    for record in _known(records):
        if isinstance(record, TextChunks):
            parts.extend(record.texts)
        elif isinstance(record, RawChunk) and isinstance(record.chunk, TextDelta):
            parts.append(record.chunk.text)
    return pair_surrogates("".join(parts))
