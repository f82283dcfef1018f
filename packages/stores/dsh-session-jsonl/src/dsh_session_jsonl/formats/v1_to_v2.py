"""Format 1 to 2: one event for each model attempt, and a marker for the fork cut.

Upstream: packages/session/session-format-v1-to-v2/src/migration.ts.
"""

from collections.abc import Iterator
from typing import Final

from dsh_session_jsonl.formats.attempts import Attempt, chunk_of, step_of
from dsh_session_jsonl.formats.errors import BrokenRowError
from dsh_session_jsonl.formats.renumbering import Renumbering
from dsh_session_jsonl.formats.restart import RestartRepair
from dsh_session_jsonl.formats.rows import (
    NEW,
    Json,
    Row,
    broken,
    cannot,
    fields,
    integer,
    made,
    natural,
    object_of,
)

_SETTLING: Final = frozenset(
    {"turn/start", "turn/end", "step/start", "step/end", "llm/retry", "llm/retry-started"}
)
"""What tells that the chunks before it belong to no message."""

_MARKER: Final = "session/end-seed"


class OneToTwo:
    """The edge from format 1 to 2.

    It holds back the chunks of one attempt and what follows them, until a message claims the
    attempt or something shows that none will.
    """

    def __init__(self, header: Json) -> None:
        self._cut = natural(header["seedLength"]) if "seedLength" in header else None
        self._seen = 0
        self._time = integer(header.get("createdAt")) or 0
        self._renumbering = Renumbering()
        self._restart = RestartRepair()
        self._attempt: Attempt | None = None
        self._held: list[Row] = []

    @staticmethod
    def header(header: Json) -> Json:
        """The header in format 2."""
        rest = {key: value for key, value in header.items() if key != "seedLength"}
        return {**rest, "version": 2, "isSeeded": "seedLength" in header}

    def push(self, row: Row) -> Iterator[Row]:
        """Convert the next row."""
        if row.seq == self._cut:
            if self._attempt is not None:
                raise cannot(row, "the fork prefix ends inside a model attempt")
            if row.type == _MARKER:
                row = row._replace(data={"inherited": True})
            else:
                yield from self._emit(self._marker(row.origin))
        self._seen, self._time = row.seq + 1, row.time
        if row.type == "assistant/chunk":
            yield from self._chunk(row)
            return
        if row.type in _SETTLING:
            yield from self._settle()
        end = self._restart.before(row)
        if end is not None:
            yield from self._emit(end)
        if row.type == "assistant/message":
            yield from self._message(row)
        else:
            yield from self._emit(*_without_goal(row))

    def finish(self) -> Iterator[Row]:
        """What the end of the log settles."""
        yield from self._settle()
        if self._cut is not None and self._cut >= self._seen:
            if self._cut > self._seen:
                rule = f"the header counts {self._cut} inherited events, the log holds {self._seen}"
                raise BrokenRowError(rule)
            yield from self._emit(self._marker(self._seen))

    def _marker(self, origin: int) -> Row:
        return Row(_MARKER, NEW, self._time, {"inherited": True}, origin)

    def _chunk(self, row: Row) -> Iterator[Row]:
        chunk, step = chunk_of(row), step_of(row)
        if self._attempt is not None and (self._attempt.finished or self._attempt.step != step):
            yield from self._settle()
        yield from self._release()  # what came between two chunks stands before the attempt
        if self._attempt is None:
            self._attempt = Attempt(*step)
        self._attempt.push(row, chunk)

    def _message(self, row: Row) -> Iterator[Row]:
        data = fields(row)
        if "stream" in data:
            raise broken(row, "format 1 keeps no stream in a message")
        if self._attempt is not None and self._attempt.step != step_of(row):
            yield from self._settle()
        attempt = self._attempt
        if attempt is not None and attempt.is_cited_by(row):
            self._attempt = None
            yield from self._release()
            yield from self._emit(row._replace(cited=None, data={**data, "stream": attempt.stream}))
            return
        if row.cited:
            raise cannot(row, "it cites something else than the chunks of its attempt")
        if row.cited is None and attempt is not None:
            raise cannot(row, "it cites nothing, and chunks of its step wait for a message")
        yield from self._emit(row._replace(cited=None, data={**data, "stream": []}))

    def _settle(self) -> Iterator[Row]:
        """Give up waiting for a message: the attempt becomes an event of its own."""
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            yield from self._emit(attempt.settled())
        yield from self._release()

    def _release(self) -> Iterator[Row]:
        held, self._held = self._held, []
        for row in held:
            yield self._renumbering.place(row)

    def _emit(self, *rows: Row) -> Iterator[Row]:
        if self._attempt is not None:
            self._held.extend(rows)
            return
        for row in rows:
            yield self._renumbering.place(row)


def _without_goal(row: Row) -> tuple[Row, ...]:
    """A message that changed the goal: the change as its own event, then the message."""
    if row.type != "user/message":
        return (row,)
    data = fields(row)
    source = data.get("source")
    if not isinstance(source, dict) or source.get("kind") != "goal" or "change" not in source:
        return (row,)
    change = object_of(row, source["change"], "the change of the goal")
    message = {**data, "source": {"kind": "plugin", "plugin": "goal"}}
    return made(row, "goal/change", change), row._replace(data=message)
