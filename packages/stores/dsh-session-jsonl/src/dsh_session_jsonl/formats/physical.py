"""From the lines of an old log to its events, and back to lines of format 4.

Formats 0 and 1 write runs of stream chunks as one row; upstream:
packages/session/session-format-v0-to-v1/src/codec.ts and v1-to-v2/src/codec.ts.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final, Literal

from dsh_brand import JsonValue
from dsh_session_jsonl.formats.errors import BrokenRowError, CannotConvertError
from dsh_session_jsonl.formats.rows import (
    MAX_SAFE_INT,
    Json,
    Replace,
    Row,
    integer,
    natural,
)
from dsh_session_jsonl.formats.vocabulary import EVENT_TYPES, FOREIGN_PREFIX

_KEYS: Final = frozenset(
    ("type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp", "ignorable")
)
_SURFACE_KEYS: Final = frozenset(("sourceEventSeqs", "surfaceOp"))
_RUN_KEYS: Final = frozenset(("type", "seq0", "time0", "data"))
_RUN_DATA: Final = frozenset(("turn", "step", "index", "dt"))
_DELTAS: Final = {"text-chunks": "text-delta", "reasoning-chunks": "reasoning-delta"}
_TOOL_RUN: Final = "tool-call-chunks"


def rows_of(value: JsonValue, version: int) -> Sequence[Row]:
    """The events of one line: one, or the members of a packed run.

    An ignorable event that the format does not know gets the prefix of foreign types here.

    Raises:
        BrokenRowError: The line is no row of that format; `seq` tells where it claims to stand.
        CannotConvertError: A required event that the format does not know.
    """
    if not isinstance(value, dict):
        raise BrokenRowError("a row is an object")
    name = value.get("type")
    if version <= 1 and isinstance(name, str) and name in {*_DELTAS, _TOOL_RUN}:
        return _run(value)
    return [_event(value, version)]


def _event(value: Json, version: int) -> Row:
    name, seq = value.get("type"), natural(value.get("seq"))
    time = integer(value.get("time"))
    if not isinstance(name, str) or not name or seq is None:
        raise BrokenRowError(
            "it needs a type and a seq", name if isinstance(name, str) else None, seq
        )
    if time is None or "data" not in value or not value.keys() <= _KEYS:
        raise BrokenRowError("it needs time and data, and no unknown keys", name, seq)
    ignorable = value.get("ignorable")
    if ignorable is not True and "ignorable" in value:
        raise BrokenRowError("ignorable is true or left out", name, seq)
    if name not in EVENT_TYPES[version]:
        if not ignorable:
            rule = f"format {version} does not know the type, and it is required"
            raise CannotConvertError(rule, name, seq)
        kept = {key: item for key, item in value.items() if key in _SURFACE_KEYS}
        foreign = f"{FOREIGN_PREFIX}{name}"
        return Row(foreign, seq, time, value["data"], seq, ignorable=True, kept=kept)
    try:
        cited = _cited(value["sourceEventSeqs"], seq) if "sourceEventSeqs" in value else None
        op = _op(value["surfaceOp"], seq, version) if "surfaceOp" in value else None
    except ValueError as error:
        raise BrokenRowError(str(error), name, seq) from error
    return Row(name, seq, time, value["data"], seq, op, cited, ignorable is True)


def _op(value: JsonValue, seq: int, version: int) -> Literal["append"] | Replace:
    if value == "append":
        return "append"
    first, last = ("start", "end") if version < 3 else ("startSeq", "endSeq")
    if isinstance(value, dict) and value.keys() == {"op", first, last}:
        start, end = natural(value[first]), natural(value[last])
        if value["op"] == "replace" and start is not None and end is not None:
            if max(start, end) >= seq:
                raise ValueError("a replacement names earlier seqs")
            return Replace(start, end)
    raise ValueError(f"surfaceOp must be 'append' or {{op: 'replace', {first}, {last}}}")


def _cited(value: JsonValue, seq: int) -> tuple[int, ...]:
    if not isinstance(value, list):
        raise ValueError("sourceEventSeqs must be a list")
    out: list[int] = []
    for item in value:
        pair = item if isinstance(item, list) else [item, item]
        numbers = [natural(end) for end in pair]
        start, end = numbers if len(numbers) == 2 else (None, None)
        if start is None or end is None or not start <= end < seq:
            raise ValueError(f"sourceEventSeqs name earlier seqs, not {item!r}")
        out.extend(range(start, end + 1))
    ranged = any(isinstance(item, list) for item in value)
    if ranged and any(right <= left for left, right in pairwise(out)):
        raise ValueError("sourceEventSeqs with a range must increase strictly")
    if len(set(out)) != len(out):
        raise ValueError("sourceEventSeqs must be distinct")
    return tuple(out)


def _run(value: Json) -> list[Row]:
    name, data = str(value["type"]), value.get("data")
    seq, time = natural(value.get("seq0")), integer(value.get("time0"))
    if value.keys() != _RUN_KEYS or seq is None or time is None or not isinstance(data, dict):
        raise BrokenRowError("a packed run has type, seq0, time0 and data", name, seq)
    try:
        deltas = _tool_deltas(data) if name == _TOOL_RUN else _text_deltas(data, _DELTAS[name])
        times = _times(time, data["dt"], len(deltas))
        step = {key: _natural(data[key]) for key in ("turn", "step")}
    except ValueError as error:
        raise BrokenRowError(str(error), name, seq) from error
    return [
        Row("assistant/chunk", at, moment, {**step, "chunk": delta}, at)
        for at, (moment, delta) in enumerate(zip(times, deltas, strict=True), seq)
    ]


def _text_deltas(data: Json, kind: str) -> list[Json]:
    texts = data.get("texts")
    if data.keys() != _RUN_DATA | {"texts"} or not isinstance(texts, list):
        raise ValueError("data of a text run has turn, step, index, dt and texts")
    index = _natural(data["index"])
    return [{"type": kind, "index": index, "text": _text(text)} for text in texts]


def _tool_deltas(data: Json) -> list[Json]:
    parts = data.get("args")
    if data.keys() - {"name"} != _RUN_DATA | {"id", "args"} or not isinstance(parts, list):
        raise ValueError("data of a tool-call run has turn, step, index, dt, id, name? and args")
    head: Json = {"type": "tool-call-delta", "index": _natural(data["index"])}
    for key in ("id", "name"):
        if key in data:
            head[key] = _text(data[key])
    return [{**head, "argumentsDelta": _text(part)} for part in parts]


def _times(first: int, gaps: JsonValue, members: int) -> list[int]:
    steps = [integer(gap) for gap in gaps] if isinstance(gaps, list) else [None]
    known = [gap for gap in steps if gap is not None]
    if len(known) != len(steps) or len(known) != members - 1:
        raise ValueError("dt has one integer less than the run has members")
    times = list(accumulate(known, initial=first))
    if any(abs(time) > MAX_SAFE_INT for time in times):
        raise ValueError("the times of a run must stay safe integers")
    return times


def _natural(value: JsonValue) -> int:
    number = natural(value)
    if number is None:
        raise ValueError(f"turn, step and index are non-negative integers, not {value!r}")
    return number


def _text(value: JsonValue) -> str:
    if not isinstance(value, str):
        raise ValueError(f"members, id and name of a run are strings, not {value!r}")
    return value


def native_row(row: Row) -> Json:
    """The event as format 4 stores it, its keys in order; cited seqs are written in full."""
    out: Json = {"type": row.type, "seq": row.seq, "time": row.time, "data": row.data}
    if row.kept is not None:
        out.update(row.kept)
    if row.cited is not None:
        out["sourceEventSeqs"] = list(row.cited)
    if isinstance(row.op, Replace):
        out["surfaceOp"] = {"op": "replace", "startSeq": row.op.start, "endSeq": row.op.end}
    elif row.op is not None:
        out["surfaceOp"] = row.op
    if row.ignorable:
        out["ignorable"] = True
    return out


def old_header(value: Mapping[str, JsonValue], version: int) -> Json:
    """The header of an old log, freed from what its format ignores.

    Raises:
        BrokenRowError: It is no header of that format.
        CannotConvertError: It holds a setting that lives elsewhere now.
    """
    if version >= 2:
        return dict(value)
    for key in ("sandboxMode", "approvalPolicy"):
        if key in value:
            raise CannotConvertError(f"the header's {key!r} is retired: the log cannot tell it")
    header = {key: value[key] for key in _OLD_HEADER if key in value}
    header.setdefault("delegationDepth", 0)
    if "seedLength" in header and natural(header["seedLength"]) is None:
        raise BrokenRowError(f"the header's seedLength is no count: {header['seedLength']!r}")
    return header


_OLD_HEADER: Final = (
    *("version", "id", "createdAt", "cwd", "parentSession"),
    *("seedLength", "origin", "delegationDepth", "agentPreset"),
)
