"""Packs the chunks of one attempt into a compact stream as they arrive."""

from typing import Final

from dsh_brand import MAX_SAFE_INT, NotJsonError, freeze_json, to_json
from dsh_llm.chunks import (
    BlockEnd,
    BlockStart,
    FinishChunk,
    ReasoningDelta,
    StreamChunk,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
)
from dsh_llm.ids import CallId
from dsh_llm.records import (
    RawChunk,
    ReasoningChunks,
    StreamRecord,
    TextChunks,
    TimedChunk,
    ToolCallChunks,
)

_RAW: Final = (BlockStart, BlockEnd, UsageChunk, FinishChunk)


class _OpenRun:
    """The run that the next delta may join."""

    __slots__ = ("dt", "id", "index", "kind", "last", "members", "name", "time0")

    def __init__(
        self, kind: type, time: int, index: int, member: str, call: tuple[str, str | None]
    ) -> None:
        self.kind = kind
        self.time0 = time
        self.last = time
        self.index = index
        self.id, self.name = call
        self.dt: list[int] = []
        self.members = [member]

    def takes(self, kind: type, time: int, index: int, call: tuple[str, str | None]) -> bool:
        return (
            self.kind is kind
            and self.index == index
            and self.id == call[0]
            and self.name == call[1]
            and -MAX_SAFE_INT <= time - self.last <= MAX_SAFE_INT
        )

    def add(self, time: int, member: str) -> None:
        self.dt.append(time - self.last)
        self.members.append(member)
        self.last = time

    def record(self) -> StreamRecord:
        dt, members = tuple(self.dt), tuple(self.members)
        if self.kind is TextDelta:
            return TextChunks(self.time0, self.index, dt, members)
        if self.kind is ReasoningDelta:
            return ReasoningChunks(self.time0, self.index, dt, members)
        return ToolCallChunks(
            time0=self.time0,
            index=self.index,
            dt=dt,
            id=CallId(self.id),
            name=self.name,
            args=members,
        )


_NO_CALL: Final = ("", None)


class AssistantStreamAccumulator:
    """Takes the chunks of one attempt and gives the records that the log keeps of it."""

    __slots__ = ("_done", "_run")

    def __init__(self) -> None:
        self._done: list[StreamRecord] = []
        self._run: _OpenRun | None = None

    def push(self, time: int, chunk: StreamChunk) -> TimedChunk:
        """Add a chunk that arrived at `time`, in milliseconds.

        Returns:
            The chunk with its time, as the live frame carries it.

        Raises:
            ValueError: Not a chunk, or one that cannot be stored; the accumulator is as before.
        """
        if type(time) is not int or not -MAX_SAFE_INT <= time <= MAX_SAFE_INT:
            raise ValueError(f"time {time!r} is not an integer of at most 2^53-1 milliseconds")
        kind = type(chunk)
        if kind is TextDelta or kind is ReasoningDelta:
            self._push_text(kind, time, chunk)  # type: ignore[arg-type]  # `kind` is its exact class
        elif kind is ToolCallDelta:
            self._push_call(time, chunk)  # type: ignore[arg-type]  # `kind` is its exact class
        elif kind in _RAW:
            self._push_raw(time, chunk)
        else:
            raise ValueError(f"{chunk!r:.120} is no chunk of a stream")
        return TimedChunk(time, chunk)

    def _push_text(self, kind: type, time: int, chunk: TextDelta | ReasoningDelta) -> None:
        _check_index(chunk.index)
        _check_text(chunk.text, "text")
        if chunk.extra is not None:
            self._keep_raw(time, chunk)
        else:
            self._join(kind, time, chunk.index, chunk.text, _NO_CALL)

    def _push_call(self, time: int, chunk: ToolCallDelta) -> None:
        _check_index(chunk.index)
        _check_text(chunk.id, "id")
        _check_text(chunk.arguments_delta, "fragment")
        if chunk.name is not None:
            _check_text(chunk.name, "name")
        if chunk.extra is not None or chunk.id == "" or chunk.name == "":
            self._keep_raw(time, chunk)
        else:
            call = (chunk.id, chunk.name)
            self._join(ToolCallDelta, time, chunk.index, chunk.arguments_delta, call)

    def _push_raw(self, time: int, chunk: StreamChunk) -> None:
        if isinstance(chunk, BlockStart | BlockEnd):
            _check_index(chunk.index)
        self._keep_raw(time, chunk)

    def _keep_raw(self, time: int, chunk: StreamChunk) -> None:
        try:
            freeze_json(to_json(chunk))
        except NotJsonError as error:
            raise ValueError(f"chunk {type(chunk).__name__} cannot be stored: {error}") from error
        self._end_run()
        self._done.append(RawChunk(time, chunk))

    def _join(
        self, kind: type, time: int, index: int, member: str, call: tuple[str, str | None]
    ) -> None:
        run = self._run
        if run is not None and run.takes(kind, time, index, call):
            run.add(time, member)
        else:
            self._end_run()
            self._run = _OpenRun(kind, time, index, member, call)

    def _end_run(self) -> None:
        if self._run is not None:
            self._done.append(self._run.record())
            self._run = None

    def snapshot(self) -> tuple[StreamRecord, ...]:
        """The records so far, detached: pushing on changes no snapshot, taking one ends no run."""
        if self._run is None:
            return tuple(self._done)
        return (*self._done, self._run.record())


def _check_index(index: object) -> None:
    if type(index) is not int or not 0 <= index <= MAX_SAFE_INT:
        raise ValueError(f"index {index!r} is not an integer in 0..2^53-1")


def _check_text(text: object, what: str) -> None:
    if type(text) is not str:
        raise ValueError(f"{what} {text!r:.120} is not a string")
