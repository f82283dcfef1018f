"""Questions while they are open: asked in the log, answered by whoever is first, decided once."""

from collections.abc import Callable
from functools import partial
from typing import cast

import anyio
import structlog
from structlog.typing import FilteringBoundLogger

from dsh_cordis import Context, Handle, task_census
from dsh_llm import AbortController, AbortSignal

from .events import OUTCOMES, ApprovalAsked, ApprovalDecided, ApprovalOutcome, ApprovalRequest

log: FilteringBoundLogger = structlog.get_logger(__name__)


class Question:
    """A request and its outcome; the first settlement counts."""

    def __init__(self, request: ApprovalRequest, closing: AbortController) -> None:
        self.request = request
        self.outcome: ApprovalOutcome | None = None
        self._closing = closing
        self._settled = anyio.Event()

    def settle(self, outcome: ApprovalOutcome) -> bool:
        """Give the outcome; false if there is one already."""
        if self.outcome is not None:
            return False
        self.outcome = outcome
        self._settled.set()
        # Who still thinks about an answer learns that none is wanted.
        self._closing.abort(outcome)
        return True

    async def wait(self) -> ApprovalOutcome:
        """The outcome."""
        await self._settled.wait()
        assert self.outcome is not None
        return self.outcome


class Questions:
    """All open questions, and those who attend to them."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._open: dict[str, Question] = {}
        self._attending = 0

    def requests(self) -> list[ApprovalRequest]:
        """What is open, oldest first."""
        return [question.request for question in self._open.values()]

    def find(self, request_id: str) -> Question | None:
        """An open question."""
        return self._open.get(request_id)

    def arrive(self) -> Callable[[], None]:
        """Somebody attends, until the returned function is called."""
        self._attending += 1
        return self._leave

    def _leave(self) -> None:
        self._attending -= 1
        if not self._attending:
            for question in list(self._open.values()):
                question.settle("unavailable")

    async def ask(self, question: Question, signal: AbortSignal | None) -> ApprovalOutcome:
        """Log the question, get its outcome, log that; on every path, cancellation included."""
        request = question.request
        session = request.agent.session
        self._open[request.id] = question
        try:
            session.append(
                ApprovalAsked(
                    id=request.id,
                    tool_name=request.tool_name,
                    call_id=request.call_id,
                    reason=request.reason,
                )
            )
            try:
                return await self._answer(question, signal)
            finally:
                question.settle("cancelled")  # counts only for native cancellation
                assert question.outcome is not None
                session.append(ApprovalDecided(id=request.id, outcome=question.outcome))
        finally:
            del self._open[request.id]

    async def _answer(self, question: Question, signal: AbortSignal | None) -> ApprovalOutcome:
        if question.outcome is not None:
            return question.outcome
        removers = [] if signal is None else _observe(signal, question)
        answering = self._start(question)
        try:
            return await question.wait()
        except BaseException:
            answering()
            raise
        finally:
            for remove in removers:
                remove()

    def _start(self, question: Question) -> Handle:
        """Ask in a task of this plugin: who still thinks is not cancelled by the caller's abort."""
        request = question.request
        label = f"approval/request {request.tool_name}"
        answering = self._ctx.spawn(self._dispatch, question, name=label)

        def cancel() -> None:
            answering()

        def ended() -> None:
            question.settle("unavailable")  # counts only where the task could not run to its end

        census = task_census.get()
        if census is not None:
            leave = census.enter("listener", label, call_id=request.call_id, cancel=cancel)
            answering.when_used(leave)
        answering.when_used(ended)
        return answering

    async def _dispatch(self, question: Question) -> None:
        request = question.request
        try:
            answer = await self._ctx.waterfall(request, partial(self._nobody_answered, question))
        except Exception as error:  # a broken answerer counts as nobody
            log.warning("approval.answerer_failed", tool=request.tool_name, exc_info=error)
            answer = "unavailable"
        # Answerers are foreign code: what they give may be anything.
        known = isinstance(cast("object", answer), str) and answer in OUTCOMES
        question.settle(answer if known else "unavailable")

    async def _nobody_answered(self, question: Question) -> ApprovalOutcome:
        return await question.wait() if self._attending else "unavailable"


def _observe(signal: AbortSignal, question: Question) -> list[Callable[[], None]]:
    def cancel() -> None:
        question.settle("cancelled")

    return [signal.observe(cancel), signal.observe_abandoned(cancel)]
