"""Stages 3 to 5: the pre-execute decision, approval, guards."""

from collections.abc import Awaitable
from typing import Final, Protocol

from dsh_cordis import Context
from dsh_llm import AbortSignal, CallId

from . import texts
from ._results import aborted, failure
from ._visibility import ToolViews
from .errors import ToolDecisionError
from .execution import Execution
from .types import Allow, Ask, Deny, PreToolDecision, ToolFailure

_DENIALS: Final = {
    "rejected": texts.APPROVAL_REJECTED,
    "cancelled": texts.APPROVAL_CANCELLED,
    "unavailable": texts.APPROVAL_UNAVAILABLE,
}


class Approval(Protocol):
    """What is asked of the service `approval`, where there is one."""

    async def request(
        self,
        agent: object,
        tool_name: str,
        *,
        call_id: CallId | None = None,
        reason: str | None = None,
        signal: AbortSignal | None = None,
    ) -> str:
        """Answer ``allowed-once``, ``rejected``, ``cancelled`` or ``unavailable``."""
        ...


class Gate:
    """Decides whether a call may run."""

    def __init__(self, ctx: Context, views: ToolViews) -> None:
        self._ctx = ctx
        self._views = views

    async def pass_(
        self, execution: Execution, answer: Awaitable[PreToolDecision]
    ) -> ToolFailure | None:
        """The refusal of a call about which listeners gave `answer`, or `None` to let it run."""
        decision: PreToolDecision | None = _checked(execution, await answer)
        if isinstance(decision, Ask):
            decision = await self._ask(execution, decision)
        if decision is None:
            return aborted(started=False)
        return self.guarded(execution) if isinstance(decision, Allow) else _refusal(decision)

    def guarded(self, execution: Execution) -> ToolFailure | None:
        """The refusal of a call that is allowed so far, or `None` to let it run."""
        for guard in self._views.guards(execution.agent):
            reason = guard(execution)
            if reason is not None:
                return _refusal(Deny(reason))
        return aborted(started=False) if execution._caller_signal.aborted else None

    async def _ask(self, execution: Execution, ask: Ask) -> Allow | Deny | None:
        """The answer of a person; `None` if the call was aborted meanwhile."""
        # Found by key; a service of another shape fails the call as any broken policy does.
        approval: Approval | None = self._ctx.get("approval")
        if approval is None:
            return Deny(ask.reason or texts.NEEDS_APPROVAL.format(name=execution.name))
        if execution.agent is None:
            return Deny(texts.NEEDS_AGENT.format(name=execution.name))
        answer = await approval.request(
            execution.agent,
            execution.name,
            call_id=execution.call_id,
            reason=ask.reason,
            signal=execution.signal,
        )
        if answer == "allowed-once":
            return Allow()
        if answer == "cancelled" and execution._caller_signal.aborted:
            return None
        if answer in _DENIALS:
            return Deny(_DENIALS[answer].format(name=execution.name))
        raise ToolDecisionError(
            f"the approval service answered {answer!r:.80}, which means nothing"
        )


def _refusal(denial: Deny) -> ToolFailure:
    return failure(denial.reason, denial.info)


def _checked(execution: Execution, decision: object) -> PreToolDecision:
    if not isinstance(decision, Allow | Deny | Ask):
        raise ToolDecisionError(
            f"a 'tools/pre-execute' listener answered {decision!r:.80} for {execution.name!r}; "
            "answer Allow(), Deny(reason), Ask(reason) or what next() gives"
        )
    return decision
