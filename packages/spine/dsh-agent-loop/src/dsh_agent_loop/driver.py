"""The driver: turns, proposals, endings and the way back to idle."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio.lowlevel
import msgspec

from dsh_agent import (
    AgentError,
    Enter,
    PreStep,
    PreStepDecision,
    Reject,
    TurnStopping,
    initiated_by,
)
from dsh_cordis import task_census
from dsh_llm import AbortController, Message, ToolCallBlock
from dsh_session import (
    Blocked,
    Completed,
    DisposedCancel,
    ErrorEnd,
    MaxTokens,
    RawData,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    interrupted_turn_closers,
)
from dsh_system_prompt import (
    PromptAssembly,
    cleared_context_message,
    render_prompt,
    runtime_context_message,
)

from . import phase as phases
from ._log import log
from .admission import admit_runtime_context
from .agent import LoopAgent
from .endings import ClosingRefusedError, aborted, failed
from .runtime import LoopRuntime
from .scheduler import run_calls
from .signal import check, until_aborted
from .step import StepPlan, request
from .turn import Turn

Calls = tuple[ToolCallBlock, ...]


def drive(agent: LoopAgent) -> None:
    """Start a driver: everything up to the claim happens in here, the rest in its task."""
    Driver(agent).start()


class Driver:
    """Drains the inbox of one agent, turn by turn."""

    def __init__(self, agent: LoopAgent) -> None:
        self._agent = agent
        self._runtime: LoopRuntime = agent.runtime
        self._opened: Turn | None = None
        self._failure: Exception | None = None
        self._converged = False

    # ---- beginning and end -----------------------------------------------------------------

    def start(self) -> None:
        """The prologue, in the sender's call; its failure is reported by the task."""
        agent = self._agent
        agent.controller = AbortController()
        leave = agent.census.enter("driver", f"driver of {agent.id}")
        with agent.counted():
            agent.announce_status("running")
            with initiated_by(agent):
                self._opened = self._open_turn()
        self._runtime.start(lambda: self._run(leave), name=f"agent {agent.id}")

    async def _run(self, leave: Callable[[], None]) -> None:
        agent = self._agent
        token = task_census.set(agent.census)
        try:
            with agent.own_task(), initiated_by(agent):
                await self._drain()
                self._converge()
            grace_s = self._runtime.settings.listener_grace_ms / 1000
            await agent.census.join_listeners(grace_s)
        except Exception as error:  # noqa: BLE001  # would fail the loop's fiber and all its agents
            log().error("agent.driver_failed", agent=agent.id, exc_info=error)
        finally:
            self._converge()
            task_census.reset(token)
            leave()

    async def _drain(self) -> None:
        turn = self._opened
        if turn is not None:
            turn.waited = True  # this task began a pass after the claim
        while turn is not None:
            reason = await self._run_turn(turn)
            # One section with the `turn/end`: no wake can fall between the check and idle.
            pending = self._agent.inbox.pending and not self._agent.closing
            ended_well = isinstance(reason, Completed | MaxTokens)
            if not phases.goes_on(ended_well=ended_well, steps=turn.step, pending=pending):
                return
            self._agent.controller = AbortController()
            turn = self._open_turn()

    def _converge(self) -> None:
        if self._converged:
            return
        self._converged = True
        agent = self._agent
        was_latched = phases.latched(agent.phase)
        agent.phase, agent.controller = phases.Idle(), None
        agent.announce_status("idle")
        agent.replay(was_latched)

    # ---- one turn --------------------------------------------------------------------------

    def _open_turn(self) -> Turn | None:
        """Begin a turn and claim its input; `None` when there is none to begin."""
        agent = self._agent
        controller = agent.controller
        if controller is None or controller.signal.aborted:
            return None
        before = agent.boundary
        try:
            self._close_left_open()
            agent.session.append(TurnStart(turn=before.turn + 1))
        except Exception as error:  # noqa: BLE001  # told to the agent's listeners
            self._report(before.turn, 0, error)
            return None
        turn = Turn(before.turn + 1, controller.signal)
        agent.phase = phases.begin_turn(agent.phase, turn.number)
        try:
            self._claim(turn, boundary=True)
        except Exception as error:  # noqa: BLE001  # the turn is open: it ends in this error
            turn.failure = error
        return turn

    def _claim(self, turn: Turn, *, boundary: bool) -> None:
        turn.selection = self._agent.model.current()
        turn.claimed = self._agent.inbox.claim(turn.number, boundary=boundary)

    async def _run_turn(self, turn: Turn) -> TurnEndReason | None:
        """Run a turn to its `turn/end`; `None` when the log refused to close it."""
        reason: TurnEndReason
        try:
            reason = await self._proposals(turn)
        except ClosingRefusedError as refusal:
            self._refused(turn, refusal)
            return None
        except Exception as error:  # noqa: BLE001  # becomes the turn's ending
            if turn.signal.aborted:
                reason = aborted(turn.signal.reason)
            else:
                self._report(turn.number, turn.step, error)
                reason = failed(error)
        except BaseException:
            # The host goes down: the log is closed before the cancellation goes on.
            self._abort_disposed()
            self._close(turn, aborted(turn.signal.reason))
            raise
        return self._close(turn, reason)

    async def _proposals(self, turn: Turn) -> TurnEndReason:
        """Steps until the turn has an ending.

        All that an abort cuts short shares one scope per step. Tools stand outside of it: what
        they gave is still committed.
        """
        if turn.failure is not None:
            raise turn.failure
        stage: Callable[[Turn], Awaitable[TurnEndReason | Calls]] = self._propose
        while True:
            came = await until_aborted(turn.signal, partial(stage, turn))
            if not isinstance(came, tuple):
                return came
            await self._run_calls(turn, came)
            check(turn.signal)
            stage = self._go_on

    async def _propose(self, turn: Turn) -> TurnEndReason | Calls:
        """Steps until one asks for tools, or the turn has an ending."""
        while True:
            if turn.waited:
                turn.waited = False
            else:
                # One pass through the scheduler: a cancel in this gap skips the assembly.
                await anyio.lowlevel.checkpoint()
            check(turn.signal)
            assembly = await self._assemble(turn)
            rendered = render_prompt(assembly)
            decision = await self._decide(turn, assembly)
            if isinstance(decision, Reject):
                return Blocked()
            if not decision.messages and not turn.owed:
                return turn.ending
            calls = await self._request(turn, decision, assembly, rendered)
            if calls:
                return calls
            self._end_step(turn, None)
            check(turn.signal)
            if await self._stops(turn):
                return turn.ending
            self._claim(turn, boundary=False)

    async def _go_on(self, turn: Turn) -> TurnEndReason | Calls:
        """Behind a step with tools."""
        if not turn.owed and await self._stops(turn):
            return turn.ending
        self._claim(turn, boundary=False)
        return await self._propose(turn)

    async def _stops(self, turn: Turn) -> bool:
        agent = self._agent
        if agent.inbox.next_step:
            return False
        if not agent.ctx.has_listeners(TurnStopping, agent):
            return True
        event = TurnStopping(agent=agent, turn=turn.number, signal=turn.signal)
        await agent.ctx.serial(event)
        check(turn.signal)
        return not agent.inbox.next_step

    async def _assemble(self, turn: Turn) -> PromptAssembly:
        agent = self._agent
        variables: dict[str, str] = {}
        if turn.selection is not None:
            variables = {"provider": turn.selection.provider, "model": turn.selection.model}
        assembly = await self._runtime.ctx.system_prompt.assemble(
            agent, turn.signal, agent=agent, variables=variables
        )
        check(turn.signal)
        return assembly

    async def _decide(self, turn: Turn, assembly: PromptAssembly) -> PreStepDecision:
        agent = self._agent
        batch = turn.batch
        if batch or turn.owed:
            batch += self._runtime_context(assembly)
        if not agent.ctx.has_listeners(PreStep, agent):
            return Enter(batch)
        event = PreStep(
            agent=agent,
            messages=batch,
            turn=turn.number,
            step=turn.step + 1,
            signal=turn.signal,
            selection=turn.selection,
            request_owed=turn.owed,
        )

        async def enter() -> PreStepDecision:
            return Enter(batch)

        decision = await agent.ctx.waterfall(event, enter)
        check(turn.signal)
        return decision

    def _runtime_context(self, assembly: PromptAssembly) -> tuple[Message, ...]:
        last = self._agent.watch.snapshot
        if last is None and not assembly.contexts:
            return ()
        offered = runtime_context_message(assembly)
        chosen = admit_runtime_context(offered, cleared_context_message(), last)
        return () if chosen is None else (chosen,)

    # ---- one step --------------------------------------------------------------------------

    async def _request(
        self, turn: Turn, decision: Enter, assembly: PromptAssembly, rendered: str
    ) -> Calls:
        """Begin a step and ask the model; the step stays open for the calls that it asks for."""
        agent = self._agent
        number = turn.step + 1
        agent.session.append(StepStart(turn=turn.number, step=number))
        turn.step = number
        agent.phase = phases.begin_step(agent.phase, number)
        plan = StepPlan(
            turn=turn,
            batch=tuple(decision.messages),
            starts_series=decision.starts_request_series,
            rendered=rendered,
            tools=tuple(assembly.tools),
        )
        try:
            return await request(agent, plan)
        except BaseException as error:
            self._end_step(turn, error)
            raise

    async def _run_calls(self, turn: Turn, calls: Calls) -> None:
        """Run the calls of an answer and end its step."""
        try:
            turn.owed = not await run_calls(self._agent, turn, calls)
        except ClosingRefusedError:
            raise
        except BaseException as error:
            self._end_step(turn, error)
            raise
        self._end_step(turn, None)

    def _end_step(self, turn: Turn, cause: BaseException | None) -> None:
        try:
            self._agent.session.append(StepEnd(turn=turn.number, step=turn.step))
        except Exception as error:  # noqa: BLE001  # raised on, with what it means for the turn
            raise ClosingRefusedError("step/end", error) from cause

    # ---- endings ---------------------------------------------------------------------------

    def _close(self, turn: Turn, reason: TurnEndReason) -> TurnEndReason | None:
        try:
            if self._agent.parks and isinstance(turn.signal.reason, DisposedCancel):
                self._agent.inbox.give_back(turn.claimed)
            self._agent.session.append(TurnEnd(turn=turn.number, reason=reason))
        except Exception as error:  # noqa: BLE001  # told; the next driver tries again
            self._agent.unclosed = reason
            if not isinstance(reason, ErrorEnd):
                self._report(turn.number, turn.step, error)
            return None
        return reason

    def _refused(self, turn: Turn, refusal: ClosingRefusedError) -> None:
        if turn.signal.aborted:
            self._agent.unclosed = aborted(turn.signal.reason)
        elif refusal.__cause__ is not None:
            self._agent.unclosed = failed(refusal.__cause__)
        else:
            self._agent.unclosed = failed(refusal.reason)
        self._report(turn.number, turn.step, refusal.reason)

    def _close_left_open(self) -> None:
        """Close a turn whose closing the log refused earlier, before another one begins."""
        agent = self._agent
        if not agent.boundary.turn_open:
            return
        for closer in interrupted_turn_closers(agent.session.events):
            data = closer.data
            if isinstance(data, TurnEnd) and agent.unclosed is not None:
                data = msgspec.structs.replace(data, reason=agent.unclosed)
            if not isinstance(data, RawData):
                agent.session.append(
                    data,
                    surface_op=closer.surface_op,
                    source_event_seqs=closer.source_event_seqs,
                )
        agent.unclosed = None

    def _report(self, turn: int, step: int, error: BaseException) -> None:
        event = AgentError(agent=self._agent, turn=turn, step=step, error=error)
        self._agent.ctx.emit(event)

    def _abort_disposed(self) -> None:
        if self._agent.controller is not None:
            self._agent.controller.abort(DisposedCancel())
