"""The service `ctx.approval`. Upstream: packages/approval/user-approval/src/service.ts."""

import uuid
from collections.abc import Iterable
from typing import ClassVar, Protocol, cast

from dsh_agent import Agent, AgentSessionStart
from dsh_cordis import Context, Handle, Service
from dsh_llm import AbortSignal, CallId, create_user_message, fuse_signals
from dsh_session import Session, TurnEnd, TurnStart
from dsh_session_projection import SessionProjectionRegistry
from dsh_system_prompt import AssemblyContext, SystemPrompt, context_order
from dsh_tools import ToolsPreExecute

from . import texts
from ._gate import RuleGate
from ._questions import Question, Questions
from .errors import ApprovalError
from .events import (
    OUTCOMES,
    POLICIES,
    ApprovalDecided,
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalPolicyEvent,
    ApprovalRequest,
    ApprovalSource,
)
from .rules import ACTIONS, ApprovalRule
from .state import APPROVAL_KEY, ApprovalState, approval_unit


class Needs(Context):
    """What approval works with."""

    session_projections: SessionProjectionRegistry
    system_prompt: SystemPrompt


class ApprovalSettings(Protocol):
    """What a deployment says; `Config` is one."""

    @property
    def policy(self) -> ApprovalPolicy:
        """Of sessions that have set none."""
        ...

    def approval_rules(self) -> tuple[ApprovalRule, ...]:
        """Rules of every session."""
        ...


class ApprovalService(Service):
    """Puts questions about tool calls to whoever answers, and keeps the decisions in the log.

    An approval is for one call and is not remembered: the next question is asked anew. Rules decide
    without a question; their order is the configured ones that deny, then those of the session,
    then the other configured ones, and the first that matches counts.
    """

    key: ClassVar[str] = "approval"

    def __init__(self, ctx: Needs, config: ApprovalSettings) -> None:
        super().__init__(ctx)
        self._policy = config.policy
        self._states = ctx.session_projections
        self._questions = Questions(ctx)
        gate = RuleGate(config.approval_rules(), lambda agent: self.state(agent).rules)
        ctx.session_projections.register(approval_unit())
        place = "approval:policy"
        ctx.system_prompt.context(place, context_order(place), self._context)
        ctx.on(AgentSessionStart, self._close_orphans)
        ctx.on(ToolsPreExecute, gate.judge)

    # ---- asking -----------------------------------------------------------------------------

    async def request(
        self,
        agent: Agent,
        tool_name: str,
        *,
        call_id: CallId | None = None,
        reason: str | None = None,
        signal: AbortSignal | None = None,
    ) -> ApprovalOutcome:
        """Ask whether a call may run.

        Args:
            agent: Whose call it is; its session keeps question and decision.
            tool_name: What is to run. The arguments are no part of the question.
            call_id: Of the call.
            reason: Why approval is needed, for the person.
            signal: When it aborts, or is abandoned, the outcome is `cancelled`.

        Returns:
            `allowed-once`, `rejected`, `cancelled` or `unavailable`.

        Raises:
            ApprovalError: The agent is not in a turn; nothing was logged.
        """
        if not _in_turn(agent.session):
            raise ApprovalError(
                f"nobody can be asked about {tool_name!r}: session {agent.session.id!r} has no "
                "open turn; ask from within one",
                "APPROVAL_NO_TURN",
            )
        closing, detach = fuse_signals(signal)
        request = ApprovalRequest(
            agent=agent,
            id=str(uuid.uuid4()),
            tool_name=tool_name,
            call_id=call_id,
            reason=reason,
            signal=closing.signal,
        )
        question = Question(request, closing)
        if closing.signal.aborted or closing.signal.abandoned:
            question.settle("cancelled")
        elif self.policy(agent) == "never":
            question.settle("rejected")
        try:
            return await self._questions.ask(question, signal)
        finally:
            detach()

    def pending(self, agent: Agent | None = None) -> tuple[ApprovalRequest, ...]:
        """The open questions, oldest first; of one agent, or of all."""
        requests = self._questions.requests()
        return tuple(each for each in requests if agent is None or each.agent is agent)

    def answer(self, request_id: str, outcome: ApprovalOutcome) -> bool:
        """Settle an open question, whoever else is thinking about it.

        Returns:
            False if it is settled already, or was never asked here.

        Raises:
            ApprovalError: There is no such outcome.
        """
        if outcome not in OUTCOMES:
            known = ", ".join(sorted(OUTCOMES))
            raise ApprovalError(
                f"{outcome!r} is no outcome; use one of {known}", "APPROVAL_UNKNOWN_ANSWER"
            )
        question = self._questions.find(request_id)
        return question is not None and question.settle(outcome)

    def attend(self) -> Handle:
        """Say that somebody will call `answer`, so that questions nobody else answers wait.

        An effect of the calling context; when the last one goes, those questions are `unavailable`.
        """
        return self.ctx.effect(self._questions.arrive, label="approval attendant")

    # ---- policy -----------------------------------------------------------------------------

    def state(self, agent: Agent) -> ApprovalState:
        """What the session of an agent says."""
        found = self._states.state_of(agent.session, APPROVAL_KEY)
        return found if isinstance(found, ApprovalState) else ApprovalState()

    def policy(self, agent: Agent) -> ApprovalPolicy:
        """The policy in force: the session's, else the configured one."""
        policy = self.state(agent).policy
        # What this build does not know must not open anything: it asks.
        return self._policy if policy is None else ("never" if policy == "never" else "ask")

    def set_policy(
        self, agent: Agent, policy: ApprovalPolicy, *, source: str | None = None
    ) -> None:
        """Set the policy of a session, and tell its agent with the next step.

        Args:
            agent: Whose session.
            policy: Setting what is set already does nothing.
            source: What sets it, if not a person.

        Raises:
            ApprovalError: There is no such policy.
        """
        if policy not in POLICIES:
            raise ApprovalError(
                f"{policy!r} is no policy; use 'ask' or 'never'", "APPROVAL_UNKNOWN_ANSWER"
            )
        if self.state(agent).policy == policy:
            return
        agent.session.append(ApprovalPolicyEvent(policy=policy, source=source))
        notice = ApprovalSource(form="notice", summary=texts.SUMMARY.format(policy=policy))
        text = texts.CHANGED.format(policy=_policy_text(policy))
        agent.inject(create_user_message(text, notice))

    def set_rules(self, agent: Agent, rules: Iterable[ApprovalRule]) -> None:
        """Set the rules of a session, in the place of those it had; they live in its log.

        Raises:
            ApprovalError: A rule has no action that exists.
        """
        given = tuple(rules)
        for rule in given:
            patterns = () if rule.arguments is None else rule.arguments.values()
            if rule.action not in ACTIONS or not all(isinstance(each, str) for each in patterns):
                raise ApprovalError(
                    f"{rule!r} is no rule; its action is 'allow', 'deny' or 'ask', and its "
                    "argument patterns are texts",
                    "APPROVAL_INVALID_RULE",
                )
        policy = self.state(agent).policy or self._policy
        agent.session.append(ApprovalPolicyEvent(policy=policy, rules=given))

    # ---- listeners --------------------------------------------------------------------------

    def _context(self, assembly: AssemblyContext) -> str:
        agent = cast("Agent | None", assembly.agent)  # opaque to the prompt, an agent to the loop
        return _policy_text(self._policy if agent is None else self.policy(agent))

    def _close_orphans(self, event: AgentSessionStart) -> None:
        # A process that dies while a question is open leaves it without a decision.
        for question in self.state(event.agent).pending:
            event.agent.session.append(ApprovalDecided(id=question.id, outcome="cancelled"))


def _policy_text(policy: ApprovalPolicy) -> str:
    return texts.POLICY_NEVER if policy == "never" else texts.POLICY_ASK


def _in_turn(session: Session) -> bool:
    for event in reversed(session.events):
        if isinstance(event.data, TurnStart):
            return True
        if isinstance(event.data, TurnEnd):
            return False
    return False
