"""Model attempts of format 1: the chunks of one, gathered until it is known what became of it."""

from dsh_brand import JsonValue
from dsh_session_jsonl.formats.packing import StreamPacker
from dsh_session_jsonl.formats.rows import Json, Row, broken, fields, made, number_of, object_of


class Attempt:
    """The chunks of one attempt, from its first on."""

    def __init__(self, turn: int, step: int) -> None:
        self.step = (turn, step)
        self.finished = False
        self._seqs: list[int] = []
        self._packer = StreamPacker()
        self._last: Row | None = None

    def push(self, row: Row, chunk: Json) -> None:
        """Take the next chunk."""
        self._last = row
        self._seqs.append(row.seq)
        self._packer.push(row.time, chunk)
        self.finished = chunk["type"] == "finish"

    def is_cited_by(self, row: Row) -> bool:
        """Whether the message names exactly these chunks, in order."""
        return row.cited == tuple(self._seqs)

    @property
    def stream(self) -> list[JsonValue]:
        """The records of the compact stream."""
        return self._packer.records

    def settled(self) -> Row:
        """The event that keeps an attempt which no message claims, at its last chunk."""
        assert self._last is not None, "an attempt begins with a chunk"
        turn, step = self.step
        data: Json = {"turn": turn, "step": step, "stream": self.stream}
        return made(self._last, "assistant/attempt", data)


def chunk_of(row: Row) -> Json:
    """The chunk of an ``assistant/chunk`` event.

    Raises:
        BrokenRowError: It has none.
    """
    data = fields(row)
    if data.keys() != {"turn", "step", "chunk"} or row.op is not None or row.cited is not None:
        raise broken(row, "it has turn, step and chunk, and no surface keys")
    chunk = object_of(row, data["chunk"], "chunk")
    if not isinstance(chunk.get("type"), str):
        raise broken(row, "a chunk has a type")
    return chunk


def step_of(row: Row) -> tuple[int, int]:
    """The turn and step that a row names.

    Raises:
        BrokenRowError: It names none.
    """
    data = fields(row)
    return number_of(row, data, "turn"), number_of(row, data, "step")
