"""Packs the chunks of one attempt into a compact stream as they arrive."""

from typing import Final

from dsh_brand import MAX_SAFE_INT, NotJsonError, freeze_json, to_json
from dsh_llm.blocks import Block, ReasoningBlock, TextBlock, ToolCallBlock
from dsh_llm.chunks import (
    BlockEnd,
    BlockStart,
    FinishChunk,
    MaxTokensFinish,
    ReasoningDelta,
    StopFinish,
    StreamChunk,
    TextDelta,
    TokenUsage,
    ToolCallDelta,
    ToolCallsFinish,
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
from dsh_llm.sources import ReplayEnvelope

_RAW: Final = (BlockStart, BlockEnd, UsageChunk, FinishChunk)
_PLAIN_FINISHES: Final = (StopFinish, ToolCallsFinish, MaxTokensFinish)


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
        if type(chunk) is TextDelta or type(chunk) is ReasoningDelta:
            run = self._run
            if (  # nearly every chunk goes on with the open run, and then this is all to check
                run is not None
                and type(chunk) is run.kind
                and chunk.index is run.index
                and chunk.extra is None
                and type(chunk.text) is str
                and type(time) is int
                and 0 <= run.last <= time <= MAX_SAFE_INT
            ):
                run.dt.append(time - run.last)
                run.members.append(chunk.text)
                run.last = time
                return TimedChunk(time, chunk)
        if type(time) is not int or not -MAX_SAFE_INT <= time <= MAX_SAFE_INT:
            raise ValueError(f"time {time!r} is not an integer of at most 2^53-1 milliseconds")
        if type(chunk) is TextDelta or type(chunk) is ReasoningDelta:
            self._add_text(time, chunk)
        elif type(chunk) is ToolCallDelta:
            self._add_call(time, chunk)
        elif type(chunk) in _RAW:
            self._keep_raw(time, chunk)
        else:
            raise ValueError(f"{chunk!r:.120} is no chunk of a stream")
        return TimedChunk(time, chunk)

    def _add_text(self, time: int, chunk: TextDelta | ReasoningDelta) -> None:
        _check_index(chunk.index)
        _check_text(chunk.text, "text")
        if chunk.extra is not None:
            self._keep_raw(time, chunk)
        else:
            self._join(type(chunk), time, chunk.index, chunk.text, _NO_CALL)

    def _add_call(self, time: int, chunk: ToolCallDelta) -> None:
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

    def _keep_raw(self, time: int, chunk: StreamChunk) -> None:
        _check_raw(chunk)
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


def _check_raw(chunk: StreamChunk) -> None:
    if type(chunk) is BlockStart or type(chunk) is BlockEnd:
        _check_index(chunk.index)
    if chunk.extra is None and _is_plain(chunk):
        return
    try:
        freeze_json(to_json(chunk))
    except NotJsonError as error:
        name = type(chunk).__name__
        raise ValueError(f"chunk {name} cannot be stored: {error}") from error


def _is_plain(chunk: StreamChunk) -> bool:
    """Whether a chunk is storable at sight, which spares most of them a walk through their JSON."""
    if type(chunk) is BlockStart:
        return type(chunk.block_type) is str
    if type(chunk) is BlockEnd:
        return _is_plain_block(chunk.block)
    if type(chunk) is FinishChunk:
        reason, state = chunk.reason, chunk.replay_state
        plain = type(reason) in _PLAIN_FINISHES and reason.extra is None
        # An envelope freezes what it is given, and refuses what is no JSON.
        return plain and (state is None or (type(state) is ReplayEnvelope and state.extra is None))
    return type(chunk) is UsageChunk and _is_plain_usage(chunk.usage)


def _is_plain_block(block: Block) -> bool:
    if block.extra is not None:
        return False
    if type(block) is TextBlock or type(block) is ReasoningBlock:
        return type(block.text) is str
    return type(block) is ToolCallBlock and (
        type(block.id) is str and type(block.name) is str and type(block.arguments) is str
    )


def _is_plain_usage(usage: TokenUsage) -> bool:
    if type(usage) is not TokenUsage or usage.extra is not None:
        return False
    counts = (
        usage.input_tokens,
        usage.output_tokens,
        usage.total_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.reasoning_tokens,
    )
    return all(
        count is None or (type(count) is int and 0 <= count <= MAX_SAFE_INT) for count in counts
    )


def _check_index(index: object) -> None:
    if type(index) is not int or not 0 <= index <= MAX_SAFE_INT:
        raise ValueError(f"index {index!r} is not an integer in 0..2^53-1")


def _check_text(text: object, what: str) -> None:
    if type(text) is not str:
        raise ValueError(f"{what} {text!r:.120} is not a string")
