"""Streams of stored attempts: most of a log's bytes, and few who open it read them."""

from collections.abc import Mapping
from typing import Final, cast

import msgspec
from typing_extensions import override

from dsh_brand import FrozenDict, Json, decode_json, freeze_json, freeze_object, from_json
from dsh_brand.wire import UnreadArray
from dsh_llm import StreamRecord
from dsh_llm.records import OpaqueRecord, StreamRecordBase


class StoredStream(UnreadArray[StreamRecord]):
    """The stream of a stored attempt: text until somebody asks for its records."""

    __slots__ = ()

    @override
    def _read(self, text: bytes) -> tuple[StreamRecord, ...]:
        try:
            return _RECORDS.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return tuple(map(_record, cast("list[object]", decode_json(text))))


def _record(value: object) -> StreamRecord:
    """A record as the exact path reads it; of what is none at all, a place is kept."""
    try:
        frozen = freeze_json(value, loading=True)
        try:
            return cast("StreamRecord", from_json(StreamRecordBase, frozen))
        except ValueError:
            return OpaqueRecord(extra=freeze_object(cast("Mapping[str, object]", frozen)))
    except ValueError:  # no object, or a number that no double holds
        return OpaqueRecord()


def freeze_hook(kind: object, value: object) -> object:
    """Freeze what the decoder found in a field of JSON."""
    if kind is Json:
        return freeze_json(value, loading=True)
    if kind is FrozenDict:
        return freeze_object(cast("Mapping[str, object]", value), loading=True)
    raise NotImplementedError(f"payload fields of type {kind!r} are not decoded: use Json")


_RECORDS: Final = msgspec.json.Decoder(tuple[StreamRecord, ...], dec_hook=freeze_hook)
