"""Old seqs to new ones, where an edge adds or drops events."""

from collections.abc import Mapping
from typing import Final

from dsh_brand import JsonValue
from dsh_session_jsonl.formats.rows import (
    NEW,
    Replace,
    Row,
    broken,
    cannot,
    natural,
)

Path = tuple[str, ...]
"""Keys down to a seq inside a payload; ``*`` is every entry of a list."""

REFERENCES: Final[Mapping[str, tuple[Path, ...]]] = {
    "command/done": (("sourceEventSeq",),),
    "compaction/summary": (
        ("shadowedRange", "start"),
        ("shadowedRange", "end"),
        ("shadowedSeqs", "*"),
    ),
    "compaction/prune": (
        ("shadowedRange", "start"),
        ("shadowedRange", "end"),
        ("shadowedSeqs", "*"),
    ),
    "session/title": (("messageSeqs", "*"),),
    "session/title-llm-request": (("messageSeqs", "*"),),
}
"""Where payloads name events of their own log. Nothing else that looks like a seq is one."""


class Renumbering:
    """Gives the rows of one edge their new seqs and moves what names them."""

    def __init__(self, references: Mapping[str, tuple[Path, ...]] = REFERENCES) -> None:
        self._references = references
        self._new: dict[int, int] = {}
        self.next = 0
        """The seq that the next row gets."""

    def place(self, row: Row) -> Row:
        """The row at the next seq. What it names was placed before; a made row is in order.

        Raises:
            CannotConvertError: It names an event that the next format does not have.
            BrokenRowError: It names no earlier event.
        """
        new, self.next = self.next, self.next + 1
        if row.seq == NEW:
            return row._replace(seq=new)
        row = self._moved(row)
        self._new[row.seq] = new
        return row._replace(seq=new)

    def _moved(self, row: Row) -> Row:
        if row.cited is not None:
            row = row._replace(cited=tuple(self._seq(row, seq) for seq in row.cited))
        if isinstance(row.op, Replace):
            ends = (self._seq(row, row.op.start), self._seq(row, row.op.end))
            row = row._replace(op=Replace(*ends))
        for path in self._references.get(row.type, ()):
            row = row._replace(data=self._mapped(row, row.data, path))
        return row

    def _mapped(self, row: Row, value: JsonValue, path: Path) -> JsonValue:
        if not path:
            return self._seq(row, value)
        if path[0] == "*":
            if not isinstance(value, list):
                raise broken(row, "the events it names must be a list")
            return [self._mapped(row, item, path[1:]) for item in value]
        if not isinstance(value, dict):
            raise broken(row, f"an object with {path[0]!r} is expected")
        if path[0] not in value:
            return value
        return {**value, path[0]: self._mapped(row, value[path[0]], path[1:])}

    def _seq(self, row: Row, value: JsonValue) -> int:
        old = natural(value)
        if old is None or old >= row.seq:
            raise broken(row, f"it names {value!r}, which is no earlier event")
        new = self._new.get(old)
        if new is None:
            raise cannot(row, f"it names seq {old}, which the next format does not have")
        return new
