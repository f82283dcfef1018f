"""The tool calls of one answer: ordered starts, overlapping bodies, ordered results, no hole."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import anyio

from dsh_agent import AbandonedWork, AgentAbandoned
from dsh_llm import ToolCallBlock
from dsh_session import ToolCallEvent
from dsh_tools import Stage, ToolExecutionInput, ToolFailure, ToolRunContext, ToolSuccess

from ._log import log
from .agent import LoopAgent
from .calls import parse_arguments
from .endings import ClosingRefusedError
from .grace import CensusEntry, Outlived, Work, WorkCancelled
from .results import Synthesized, aborted_success, result_event, synthesized
from .turn import Turn

T = TypeVar("T")
ToolResult = ToolSuccess | ToolFailure


async def run_calls(agent: LoopAgent, turn: Turn, calls: Sequence[ToolCallBlock]) -> bool:
    """Run the calls of an answer; each has exactly one result when this returns or raises.

    Returns:
        Whether a result concludes the turn.

    Raises:
        ClosingRefusedError: The log took no result for a call.
        Exception: The first failure of the scheduling itself; a failing tool is none.
    """
    return await _Batch(agent, turn, calls).run()


class _Call:
    """One call on its way."""

    def __init__(self, block: ToolCallBlock, given: ToolExecutionInput) -> None:
        self.block = block
        self.input = given
        self.seq: int | None = None
        """Of its `tool/call`."""
        self.exclusive = False
        self.exec: ToolRunContext | None = None
        self.dispatched = False
        """Its body with its wrappers may have begun."""
        self.work: Work[ToolResult] | None = None
        """They run in a task, since they may wait."""
        self.outcome: ToolResult | None = None
        """What the gate answered, or a body that did not wait."""
        self.final = False
        """The answer of the gate skips the post stage."""
        self.answer: Synthesized | None = None
        """The loop answers in its place."""
        self.abandoned: CensusEntry | None = None
        """What still runs of it, the innermost part."""
        self.stack = ""
        """Where that stood when it was given up."""
        self.committed = False

    @property
    def ready(self) -> bool:
        return (
            self.answer is not None
            or self.outcome is not None
            or (self.work is not None and self.work.done)
        )

    @property
    def running(self) -> bool:
        return self.work is not None and not self.work.done and self.answer is None


class _Batch:
    """All calls of one answer."""

    def __init__(self, agent: LoopAgent, turn: Turn, blocks: Sequence[ToolCallBlock]) -> None:
        self._agent = agent
        self._turn = turn
        self._signal = turn.signal
        self._tools = agent.runtime.ctx.tools
        self._failure: Exception | None = None
        self._concluded = False
        self._wake: anyio.Event | None = None
        self._stage_work: Work[object] | None = None
        self._calls = [_Call(block, self._input(block)) for block in blocks]
        # Calls begin and are committed in their order, so two positions tell where each stands.
        self._begun = 0
        self._committed = 0

    def _input(self, block: ToolCallBlock) -> ToolExecutionInput:
        return ToolExecutionInput(
            name=block.name,
            arguments=parse_arguments(block.arguments),
            call_id=block.id,
            signal=self._signal,
            agent=self._agent,
        )

    async def run(self) -> bool:
        """Schedule until every call is committed."""
        try:
            await self._schedule()
        except ClosingRefusedError:
            await self._stop_everything()
            raise
        except BaseException:
            await self._stop_everything()
            for call in self._calls[self._committed :]:
                self._answer_cancelled(call)
                self._commit_answer(call)
            raise
        if self._failure is not None:
            raise self._failure
        return self._concluded

    async def _schedule(self) -> None:
        while self._committed < len(self._calls):
            head = self._calls[self._committed]
            if self._failure is not None and self._running():
                # Undisturbed: their outcomes are committed in order, behind the failed call's.
                await self._wait()
                continue
            if head.ready:
                await self._guarded(head, self._commit)
                continue
            following = self._startable()
            if following is not None:
                self._begun += 1
                await self._guarded(following, self._start)
            elif self._committed < self._begun:
                await self._wait()
            else:
                # Nothing starts any more, and all before it are answered.
                head.answer = (
                    "TOOL_NOT_STARTED" if self._failure is not None else "ABORTED_BEFORE_DISPATCH"
                )

    @property
    def _stopped(self) -> bool:
        return self._failure is not None or self._signal.aborted

    async def _guarded(self, call: _Call, stage: Callable[[_Call], Awaitable[None]]) -> None:
        try:
            await stage(call)
        except ClosingRefusedError:
            raise
        except Exception as error:  # noqa: BLE001  # raised by `run` once every call is answered
            self._fail(call, error)

    def _fail(self, call: _Call, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        else:
            log().error("agent.scheduler_failed_again", agent=self._agent.id, exc_info=error)
        if not call.committed:
            call.answer = "TOOL_OUTCOME_UNKNOWN" if call.dispatched else "TOOL_NOT_STARTED"

    # ---- starting --------------------------------------------------------------------------

    def _startable(self) -> _Call | None:
        """The next call, if it may start now; its mode is asked for again each time."""
        if self._stopped or self._begun >= len(self._calls):
            return None
        following = self._calls[self._begun]
        under_way = self._calls[self._committed : self._begun]
        if any(call.exclusive for call in under_way):
            return None
        following.exclusive = self._tools.execution_mode(following.input) != "parallel"
        if following.exclusive:
            return None if under_way else following
        cap = self._agent.runtime.settings.max_parallel_tool_calls
        return following if sum(call.running for call in under_way) < cap else None

    async def _start(self, call: _Call) -> None:
        self._log_call(call)
        prepared = await self._stage(call, self._tools.scheduler.preparing(call.input))
        if prepared is None:
            return
        call.exec = record = prepared.exec
        if prepared.kind != "dispatch":
            call.outcome, call.final = prepared.result, prepared.kind == "final-result"
            return
        call.dispatched = True
        stage = self._tools.scheduler.dispatching(record)
        if stage.immediate:
            call.outcome = await stage
            return
        call.work = self._run_work(call, stage)
        call.work.observe(self._notify)

    def _log_call(self, call: _Call) -> None:
        event = self._agent.session.append(
            ToolCallEvent(
                turn=self._turn.number,
                step=self._turn.step,
                call_id=call.block.id,
                name=call.block.name,
                arguments=call.block.arguments,
            )
        )
        call.seq = event.seq

    # ---- waiting ---------------------------------------------------------------------------

    def _run_work(self, call: _Call, stage: Stage[T]) -> Work[T]:
        agent = self._agent
        work = Work(stage.alone(), agent.own_tasks)
        agent.runtime.start_here(work.run, name=f"tool {call.block.name} of {agent.id}")
        return work

    async def _stage(self, call: _Call, stage: Stage[T]) -> T | None:
        """Run a gate or a post stage; `None` when the call was answered in its place."""
        if stage.immediate:
            return await stage
        work = self._run_work(call, stage)
        self._stage_work = work  # type: ignore[assignment]  # only cancelled through this name
        try:
            await work.settled(self._signal, self._agent.runtime.grace)
            return work.outcome()
        except WorkCancelled:
            call.answer = "ABORTED" if call.dispatched else "ABORTED_BEFORE_DISPATCH"
        except Outlived:
            self._abandon(call)
        finally:
            if work.done:
                self._stage_work = None
        return None

    def _notify(self) -> None:
        if self._wake is not None:
            self._wake.set()

    async def _wait(self) -> None:
        """Return when a body ends; after an abort, when all have ended or were given up."""
        if self._signal.aborted:
            await self._climb_down()
            return
        self._wake = wake = anyio.Event()
        remove = self._signal.observe(wake.set)
        try:
            await wake.wait()
        finally:
            remove()

    async def _climb_down(self) -> None:
        grace = self._agent.runtime.grace
        with grace.clock.move_on_after(grace.cancel_s):
            await self._all_ended()
        for call in self._running():
            if call.work is not None:
                call.work.cancel()
        with grace.clock.move_on_after(grace.abandon_s, shield=True):
            await self._all_ended()
        for call in self._running():
            self._abandon(call)

    async def _all_ended(self) -> None:
        while self._running():
            self._wake = wake = anyio.Event()
            await wake.wait()

    def _running(self) -> list[_Call]:
        return [call for call in self._calls if call.running]

    def _abandon(self, call: _Call) -> None:
        call.answer = "TOOL_OUTCOME_UNKNOWN"
        if call.exec is not None:
            self._tools.scheduler.abandon(call.exec)
        if self._agent.controller is not None:
            # Waits for threads let go; the executions of other calls go on.
            self._agent.controller.abandon()
        alive = self._agent.census.abandon_call(call.block.id)
        call.abandoned = alive[-1] if alive else None
        for work in (self._stage_work, call.work):
            call.stack = call.stack or ("" if work is None else work.stack)

    async def _stop_everything(self) -> None:
        """The driver is cancelled: cancel what runs and give it one grace."""
        grace = self._agent.runtime.grace
        works: list[Work[object]] = [] if self._stage_work is None else [self._stage_work]
        for call in self._running():
            if call.work is not None:
                call.work.cancel()
        with anyio.CancelScope(shield=True):
            for work in works:
                work.cancel()
                with grace.clock.move_on_after(grace.abandon_s):
                    await work.ended()
            with grace.clock.move_on_after(grace.abandon_s):
                await self._all_ended()
        for call in self._running():
            self._abandon(call)

    # ---- committing ------------------------------------------------------------------------

    async def _commit(self, call: _Call) -> None:
        if call.answer is None:
            result = await self._judged(call)
            if call.answer is None and result is not None:
                self._append_result(call, result)
                return
        self._commit_answer(call)

    async def _judged(self, call: _Call) -> ToolResult | None:
        """The outcome after the post stage; `None` when the call was answered in its place."""
        record = call.exec
        if record is None:
            raise RuntimeError(f"call {call.block.id!r} has an outcome and no record")
        scheduler = self._tools.scheduler
        outcome = call.outcome
        if outcome is not None and call.final:
            return await scheduler.finish(record, outcome)
        if outcome is None and call.work is not None:
            try:
                outcome = call.work.outcome()
            except WorkCancelled:
                call.answer = "ABORTED"
                return None
        if outcome is None:
            raise RuntimeError(f"call {call.block.id!r} is committed without an outcome")
        return await self._stage(call, scheduler.finalizing(record, outcome))

    def _append_result(self, call: _Call, result: ToolResult) -> None:
        if isinstance(result, ToolSuccess) and self._signal.aborted:
            result = aborted_success(result)
        self._append(call, result)
        if isinstance(result, ToolSuccess) and result.concludes_turn:
            self._concluded = True
        for context in result.additional_contexts:
            self._agent.inbox.append("next-step", context)

    def _append(self, call: _Call, result: ToolResult) -> None:
        event = result_event(self._turn.number, self._turn.step, call.block.id, result)
        sources = None if call.seq is None else (call.seq,)
        self._agent.session.append(event, surface_op="append", source_event_seqs=sources)
        call.committed = True
        self._committed += 1
        self._begun = max(self._begun, self._committed)

    def _answer_cancelled(self, call: _Call) -> None:
        """How a call stands when the driver itself was cancelled."""
        if call.answer is None:
            call.answer = "ABORTED" if call.dispatched else "ABORTED_BEFORE_DISPATCH"

    def _commit_answer(self, call: _Call) -> None:
        """Log the synthesized result, behind a `tool/call` where none was logged."""
        answer: Synthesized = call.answer or "TOOL_OUTCOME_UNKNOWN"
        if call.seq is None and not self._log_call_late(call):
            answer = "TOOL_NOT_STARTED"
        try:
            self._append(call, synthesized(answer))
        except Exception as first:  # noqa: BLE001  # tried once more, with the least there is
            self._append_last_resort(call, first)
        if call.abandoned is not None:
            self._tell_abandoned(call.abandoned, call.stack)

    def _log_call_late(self, call: _Call) -> bool:
        try:
            self._log_call(call)
        except Exception as error:  # noqa: BLE001  # the result says that it was not started
            if self._failure is None:
                self._failure = error
            return False
        return True

    def _append_last_resort(self, call: _Call, first: Exception) -> None:
        try:
            self._append(call, synthesized("TOOL_OUTCOME_UNKNOWN"))
        except Exception as second:  # noqa: BLE001  # raised on, with what it means for the turn
            raise ClosingRefusedError("tool/result", second) from first
        if self._failure is None:
            self._failure = first

    def _tell_abandoned(self, entry: CensusEntry, stack: str) -> None:
        work = AbandonedWork(
            kind=entry.kind, label=entry.label, call_id=entry.call_id, age_s=entry.age_s
        )
        log().error(
            "agent.work_abandoned",
            agent=self._agent.id,
            kind=work.kind,
            label=work.label,
            stack=stack,
        )
        self._agent.ctx.emit(AgentAbandoned(agent=self._agent, work=work))
