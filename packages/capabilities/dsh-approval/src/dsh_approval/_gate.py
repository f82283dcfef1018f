"""Rules at work: the listener that judges each call before it runs."""

from collections.abc import Callable

from dsh_agent import Agent
from dsh_cordis import Next
from dsh_session import ToolErrorInfo
from dsh_tools import Allow, Ask, Deny, PreToolDecision, ToolRunContext, ToolsPreExecute

from . import texts
from .rules import ApprovalRule, first_match


class RuleGate:
    """Judges calls by the rules of the deployment and of the calling agent's session."""

    def __init__(
        self,
        configured: tuple[ApprovalRule, ...],
        rules_of: Callable[[Agent], tuple[ApprovalRule, ...]],
    ) -> None:
        self._configured = configured
        self._denials = tuple(rule for rule in configured if rule.action == "deny")
        self._rules_of = rules_of

    async def judge(self, event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
        """Deny, ask, or answer beforehand what others would ask; their denials stand."""
        rule = self._rule_for(event.exec)
        if rule is None:
            return await next_()
        name = event.exec.name
        if rule.action == "deny":
            info = ToolErrorInfo(name="ApprovalRuleError", code="APPROVAL_DENIED")
            return Deny(rule.reason or texts.DENIED.format(name=name), info)
        decision = await next_()
        if rule.action == "ask" and isinstance(decision, Allow):
            return Ask(rule.reason or texts.ASKED.format(name=name))
        if rule.action == "allow" and isinstance(decision, Ask):
            return Allow()
        return decision

    def _rule_for(self, run: ToolRunContext) -> ApprovalRule | None:
        own = () if run.agent is None else self._rules_of(run.agent)
        if not own and not self._configured:
            return None
        cwd = None if run.agent is None else run.agent.session.header.cwd
        rules = (*self._denials, *own, *self._configured)
        return first_match(rules, run.name, run.arguments, cwd)
