"""The records of a compact stream: the whole stream of one attempt as a log keeps it.

Records lose nothing: every member text, the empty ones too, every time and every boundary.
"""

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import msgspec

from dsh_brand import OpenUnion, Wire
from dsh_llm.chunks import StoredChunk, StreamChunk
from dsh_llm.ids import CallId


class TimedChunk(msgspec.Struct, frozen=True, gc=False):
    """A chunk and when it arrived, in milliseconds; what a live frame carries."""

    time: int
    chunk: StreamChunk


class TimedStoredChunk(NamedTuple):
    """As `TimedChunk`, of a stored stream: its type may be unknown to this build."""

    time: int
    chunk: StoredChunk


class StreamRecordBase(Wire, frozen=True, tag_field="type", gc=False):
    """Base of the records. As chunks they hold no cycles, and a log may keep very many."""


class TextChunks(StreamRecordBase, frozen=True, tag="text-chunks", gc=False):
    """A run of text deltas of one block."""

    time0: int
    index: int
    dt: tuple[int, ...]
    """The gap of each further member to the one before it, in milliseconds; may be negative."""
    texts: tuple[str, ...]


class ReasoningChunks(StreamRecordBase, frozen=True, tag="reasoning-chunks", gc=False):
    """A run of reasoning deltas of one block."""

    time0: int
    index: int
    dt: tuple[int, ...]
    texts: tuple[str, ...]


class ToolCallChunks(StreamRecordBase, frozen=True, tag="tool-call-chunks", kw_only=True, gc=False):
    """A run of fragments of one tool call, all with the same id and name."""

    time0: int
    index: int
    dt: tuple[int, ...]
    id: CallId
    name: str | None = None
    args: tuple[str, ...]


class RawChunk(StreamRecordBase, frozen=True, tag="chunk", gc=False):
    """One chunk that joins no run."""

    time: int
    chunk: StoredChunk


class OpaqueRecord(StreamRecordBase, frozen=True, tag=False, gc=False):
    """A record of an unknown type, kept whole; readers and assembly pass over it."""


_RECORDS = OpenUnion(StreamRecordBase, OpaqueRecord)
for _record in (TextChunks, ReasoningChunks, ToolCallChunks, RawChunk):
    _RECORDS.register(_record)

Run: TypeAlias = TextChunks | ReasoningChunks | ToolCallChunks
"""A record that holds several deltas of one block."""

if TYPE_CHECKING:  # msgspec needs the tags; a stored stream may hold an unknown one besides
    StreamRecord: TypeAlias = (
        TextChunks | ReasoningChunks | ToolCallChunks | RawChunk | OpaqueRecord
    )
else:
    StreamRecord = TextChunks | ReasoningChunks | ToolCallChunks | RawChunk
