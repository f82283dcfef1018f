"""One model attempt: its stream, its live frames and its one durable event."""

from collections.abc import Sequence

from dsh_agent import (
    Abandoned,
    AgentAssistantStream,
    Committed,
    FrameOutcome,
    StreamChunkFrame,
    StreamEnd,
    StreamStart,
)
from dsh_llm import (
    AssistantStreamAccumulator,
    Block,
    BlockAssembler,
    ModelSource,
    ReplayEnvelope,
    StreamChunk,
    ToolCallBlock,
    create_assistant_message,
)
from dsh_session import (
    AssistantAttempt,
    AssistantMessageEvent,
    SessionEventData,
    SurfaceOp,
)

from .agent import LoopAgent


class Attempt:
    """Collects a stream; settled exactly once by one of the three `settle_*` methods."""

    __slots__ = (
        "_agent",
        "_assembler",
        "_count",
        "_ctx",
        "_id",
        "_now_ms",
        "_route",
        "_step",
        "_stream",
        "_turn",
    )

    def __init__(self, agent: LoopAgent, turn: int, step: int, route: tuple[str, str]) -> None:
        self._agent = agent
        self._ctx = agent.ctx
        self._now_ms = agent.runtime.now_ms
        self._turn = turn
        self._step = step
        self._route = route
        self._id = agent.next_attempt_id()
        self._stream = AssistantStreamAccumulator()
        self._assembler = BlockAssembler()
        self._count = 0

    @property
    def assembler(self) -> BlockAssembler:
        """What the chunks so far add up to."""
        return self._assembler

    def start(self) -> None:
        """Tell that the attempt is under way."""
        agent = self._agent
        agent.revision += 1
        if self._heard():
            self._emit(
                StreamStart(
                    attempt_id=self._id, revision=agent.revision, turn=self._turn, step=self._step
                )
            )

    def push(self, chunk: StreamChunk) -> None:
        """Take one chunk."""
        timed = self._stream.push(self._now_ms(), chunk)
        self._assembler.push(timed.chunk)
        agent = self._agent
        agent.revision += 1
        index = self._count
        self._count = index + 1
        if self._heard():
            self._emit(
                StreamChunkFrame(
                    attempt_id=self._id,
                    revision=agent.revision,
                    index=index,
                    time=timed.time,
                    chunk=timed.chunk,
                )
            )

    def settle_message(self) -> tuple[ToolCallBlock, ...]:
        """Record the answer.

        Returns:
            The calls it asks for.
        """
        try:
            blocks = self._agent.distinct_calls(self._assembler.blocks())
        except Exception:
            self.settle_attempt()
            raise
        self._commit_message(blocks, self._assembler.replay_state, interrupted=False)
        return tuple([block for block in blocks if isinstance(block, ToolCallBlock)])

    def settle_interrupted(self) -> None:
        """Record the visible prefix of an aborted attempt, or that there was none."""
        blocks = self._assembler.interrupted_blocks()
        if not blocks:
            self.settle_attempt()
            return
        replay = self._assembler.replay_state
        if replay is not None and len(blocks) != len(self._assembler.blocks()):
            replay = None
        self._commit_message(blocks, replay, interrupted=True)

    def settle_attempt(self) -> None:
        """Record that the attempt left no message."""
        self._commit(
            AssistantAttempt(turn=self._turn, step=self._step, stream=self._stream.snapshot())
        )

    def _commit_message(
        self, blocks: Sequence[Block], replay: ReplayEnvelope | None, *, interrupted: bool
    ) -> None:
        provider, model = self._route
        source = ModelSource(provider=provider, model=model, replay_state=replay)
        self._commit(
            AssistantMessageEvent(
                turn=self._turn,
                step=self._step,
                message=create_assistant_message(blocks, source),
                stream=self._stream.snapshot(),
                usage=self._assembler.usage,
                interrupted=True if interrupted else None,
            )
        )

    def _commit(self, data: SessionEventData) -> None:
        surface: SurfaceOp | None = "append" if isinstance(data, AssistantMessageEvent) else None
        outcome: FrameOutcome = Abandoned()
        try:
            event = self._agent.session.append(data, surface_op=surface)
            if isinstance(data, AssistantMessageEvent):
                outcome = Committed(event_type="assistant/message", seq=event.seq)
            else:
                outcome = Committed(event_type="assistant/attempt", seq=event.seq)
        finally:
            self._agent.revision += 1
            if self._heard():
                self._emit(
                    StreamEnd(
                        attempt_id=self._id,
                        revision=self._agent.revision,
                        index=self._count,
                        outcome=outcome,
                    )
                )

    def _heard(self) -> bool:
        """Whether anybody listens to frames: they are one per chunk, so none is made for nobody."""
        return self._ctx.has_listeners(AgentAssistantStream, self._agent)

    def _emit(self, frame: StreamStart | StreamChunkFrame | StreamEnd) -> None:
        self._ctx.emit(AgentAssistantStream(agent=self._agent, frame=frame))
