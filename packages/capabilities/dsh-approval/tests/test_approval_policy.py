"""Policy, rules and state, alone and in a real loop."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import anyio
import pytest

import dsh_approval
from dsh_agent_loop.testing import LoopStack, Step, call, loop_stack, say
from dsh_approval import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalError,
    ApprovalOutcome,
    ApprovalPolicy,
    ApprovalPolicyEvent,
    ApprovalRequest,
    ApprovalRule,
    ApprovalService,
    ApprovalSource,
    first_match,
    texts,
)
from dsh_brand import JsonValue, freeze_object
from dsh_cordis import ConfigError, Context, Next
from dsh_llm import message_text
from dsh_session import ToolResultEvent, TurnStart, UserMessageEvent, event_from_json, event_to_json
from dsh_tools import Ask, Deny, PreToolDecision, ToolsPreExecute, tool


@tool
async def echo(text: str) -> str:
    """Say it again.

    Args:
        text: What to say.
    """
    return text


@asynccontextmanager
async def stack_with(
    *replies: list[Step], **config: object
) -> AsyncIterator[tuple[LoopStack, ApprovalService]]:
    def mount(root: Context) -> None:
        root.plugin(dsh_approval, config)

    async with loop_stack(*replies, before=mount) as stack:
        stack.ctx.tools.register(echo)
        yield stack, cast("ApprovalService", stack.ctx.approval)


def approve(stack: LoopStack, outcome: ApprovalOutcome = "allowed-once") -> list[ApprovalRequest]:
    heard: list[ApprovalRequest] = []

    async def answer(event: ApprovalRequest, next_: Next[ApprovalOutcome]) -> ApprovalOutcome:
        heard.append(event)
        return outcome

    stack.ctx.on(ApprovalRequest, answer)
    return heard


def last_result(stack: LoopStack) -> tuple[str, str | None]:
    """Text and code of the last tool result."""
    results = [e.data for e in stack.agent.session.events if isinstance(e.data, ToolResultEvent)]
    error = results[-1].error
    return message_text(results[-1].message), None if error is None else error.code


def rule(tool_name: str, action: str, **arguments: str) -> ApprovalRule:
    patterns = freeze_object(dict(arguments)) if arguments else None
    return ApprovalRule(tool=tool_name, action=action, arguments=patterns)


SAY = call(("c1", "echo", '{"text": "hi"}'))


# ---- rules ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "arguments", "matches"),
    [
        pytest.param(rule("bash", "deny"), {}, True, id="name"),
        pytest.param(rule("ba*", "deny"), {}, True, id="pattern"),
        pytest.param(rule("BASH", "deny"), {}, False, id="case"),
        pytest.param(rule("bas", "deny"), {}, False, id="whole"),
        pytest.param(rule("bash", "deny", command="git *"), {"command": "git log"}, True, id="arg"),
        pytest.param(rule("bash", "deny", command="git *"), {"command": "ls"}, False, id="no"),
        pytest.param(rule("bash", "deny", command="*"), {}, False, id="missing"),
        pytest.param(rule("bash", "deny", n="3"), {"n": 3}, True, id="number"),
        pytest.param(rule("bash", "deny", n='[[]"a"]'), {"n": ["a"]}, True, id="list"),
        pytest.param(rule("bash", "deny", a="x", b="y"), {"a": "x", "b": "z"}, False, id="all"),
        pytest.param(rule("bash", "deny", a="*"), "no object", False, id="text"),
        pytest.param(rule("bash", "deny"), "no object", True, id="text-by-name"),
    ],
)
def test_a_rule_matches_by_tool_and_arguments(
    given: ApprovalRule, arguments: JsonValue, matches: bool
) -> None:
    assert given.matches("bash", arguments) is matches


def test_the_first_match_decides_and_unknown_actions_are_passed_over() -> None:
    rules = (rule("*", "later"), rule("a", "allow"), rule("*", "deny"))
    assert first_match(rules, "a", {}) is rules[1]
    assert first_match(rules, "b", {}) is rules[2]
    assert first_match(rules[:1], "b", {}) is None


async def test_a_configured_rule_denies_with_its_reason() -> None:
    rules = [{"tool": "echo", "action": "deny", "arguments": {"text": "h*"}, "reason": "no h"}]
    async with stack_with(SAY, say("ok"), rules=rules) as (stack, _):
        await stack.run("go")
        assert last_result(stack) == ("Error: no h", "APPROVAL_DENIED")


async def test_a_rule_that_denies_without_reason_says_so() -> None:
    async with stack_with(SAY, say("ok"), rules=[{"tool": "e*", "action": "deny"}]) as (stack, _):
        await stack.run("go")
        assert last_result(stack)[0] == "Error: tool 'echo' may not be called in this way"


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        ("allowed-once", "hi"),
        ("rejected", "Error: tool 'echo' was not run: the request for approval was rejected"),
        ("unavailable", "Error: tool 'echo' was not run: nobody could be asked for approval"),
    ],
)
async def test_T54_a_rule_that_asks_puts_the_call_to_an_answerer(
    outcome: ApprovalOutcome, text: str
) -> None:
    rules = [{"tool": "echo", "action": "ask", "reason": "it talks"}]
    async with stack_with(SAY, say("ok"), rules=rules) as (stack, _):
        heard = approve(stack, outcome)
        await stack.run("go")
        assert last_result(stack)[0] == text
        [request] = heard
        assert (request.tool_name, request.call_id, request.reason) == ("echo", "c1", "it talks")
        assert request.agent is stack.agent


async def test_a_rule_that_allows_answers_what_others_would_ask() -> None:
    async with stack_with(SAY, say("ok"), rules=[{"tool": "echo", "action": "allow"}]) as (
        stack,
        _,
    ):

        async def asks(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            return Ask("other policy")

        stack.ctx.on(ToolsPreExecute, asks)
        heard = approve(stack)
        await stack.run("go")
        assert last_result(stack) == ("hi", None)
        assert heard == []


@pytest.mark.parametrize("action", ["allow", "ask"])
async def test_a_rule_never_lifts_the_denial_of_another(action: str) -> None:
    async with stack_with(SAY, say("ok"), rules=[{"tool": "echo", "action": action}]) as (stack, _):

        async def denies(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            return Deny("closed")

        stack.ctx.on(ToolsPreExecute, denies)
        await stack.run("go")
        assert last_result(stack)[0] == "Error: closed"


async def test_rules_of_a_session_stand_above_configured_ones_except_denials() -> None:
    rules = [{"tool": "echo", "action": "ask"}, {"tool": "secret", "action": "deny"}]
    replies = (SAY, say("ok"), call(("c2", "secret", "{}")), say("ok"))
    async with stack_with(*replies, rules=rules) as (stack, service):
        service.set_rules(stack.agent, [rule("*", "allow")])
        heard = approve(stack)
        await stack.run("go")
        assert last_result(stack) == ("hi", None)
        await stack.run("go")
        assert last_result(stack)[1] == "APPROVAL_DENIED"
        assert heard == []


async def test_rules_of_a_session_are_in_its_log_and_survive_a_change_of_policy() -> None:
    async with stack_with() as (stack, service):
        given = (rule("echo", "ask", text="h*"),)
        service.set_rules(stack.agent, given)
        service.set_policy(stack.agent, "never")
        stored = [
            event_from_json(event_to_json(event)).data
            for event in stack.agent.session.events
            if event.type == "approval/policy"
        ]
        assert stored == [
            ApprovalPolicyEvent(policy="ask", rules=given),
            ApprovalPolicyEvent(policy="never"),
        ]
        assert service.state(stack.agent).rules == given
        service.set_rules(stack.agent, [])
        assert service.state(stack.agent).rules == ()
        assert service.policy(stack.agent) == "never"


async def test_a_rule_without_meaning_is_refused() -> None:
    async with stack_with() as (stack, service):
        for bad in (
            rule("echo", "maybe"),
            ApprovalRule(tool="echo", action="ask", arguments=freeze_object({"n": 3})),
        ):
            with pytest.raises(ApprovalError) as caught:
                service.set_rules(stack.agent, [bad])
            assert caught.value.code == "APPROVAL_INVALID_RULE"
        assert service.state(stack.agent).rules == ()


# ---- policy ---------------------------------------------------------------------------------


async def test_C69_a_change_of_policy_is_a_notice_and_a_context_and_no_prompt() -> None:
    async with stack_with(say("a"), say("b")) as (stack, service):
        await stack.run("one")
        service.set_policy(stack.agent, "never")
        await stack.run("two")
        session = stack.agent.session
        messages = [e.data.message for e in session.events if isinstance(e.data, UserMessageEvent)]
        notices = [m for m in messages if isinstance(m.source, ApprovalSource)]
        assert [message_text(m) for m in notices] == [
            texts.CHANGED.format(policy=texts.POLICY_NEVER)
        ]
        source = notices[0].source
        assert source == ApprovalSource(form="notice", summary="Approval policy: never")
        assert source.kind == "user-approval"
        contexts = [message_text(m) for m in messages if m.source.kind == "runtime-context"]
        assert texts.POLICY_ASK in contexts[0]
        assert texts.POLICY_NEVER in contexts[1]
        last = stack.model.requests[-1]
        assert "pproval" not in (last.system or "")


async def test_C69_setting_the_same_policy_again_does_nothing() -> None:
    async with stack_with() as (stack, service):
        service.set_policy(stack.agent, "never", source="delegation")
        before = len(stack.agent.session.events)
        service.set_policy(stack.agent, "never")
        assert len(stack.agent.session.events) == before
        stored = [e.data for e in stack.agent.session.events if e.type == "approval/policy"]
        assert stored == [ApprovalPolicyEvent(policy="never", source="delegation")]


async def test_an_unknown_policy_is_refused_and_one_in_a_log_asks() -> None:
    async with stack_with(policy="never") as (stack, service):
        with pytest.raises(ApprovalError):
            service.set_policy(stack.agent, cast("ApprovalPolicy", "always"))
        stack.agent.session.append(ApprovalPolicyEvent(policy="always"))
        assert service.policy(stack.agent) == "ask"


def test_C119_the_texts_are_held() -> None:
    assert texts.POLICY_ASK == (
        "Approval: calls that need it are put to a person, each one anew; an approval covers that "
        "one call. If one is rejected, do not repeat it: choose another way or explain what you "
        "need."
    )
    assert texts.POLICY_NEVER == (
        "Approval: nobody can be asked in this session, so calls that need approval are rejected "
        "at once. Do not try them; work with what needs no approval, and say what you could not do."
    )
    assert texts.CHANGED == "The approval policy was changed. {policy}"


# ---- log and state --------------------------------------------------------------------------


async def test_C66_the_log_of_a_turn_pairs_question_and_decision() -> None:
    async with stack_with(SAY, say("ok"), rules=[{"tool": "echo", "action": "ask"}]) as (stack, _):
        approve(stack)
        lines = await stack.run("go")
        at = lines.index("tool/call c1")
        durable = [line for line in lines[at:] if not line.startswith("~")]
        assert durable[:4] == [
            "tool/call c1",
            "approval/asked",
            "approval/decided",
            "tool/result c1",
        ]


async def test_A73_cancelling_a_turn_ends_the_question_and_then_the_answerer() -> None:
    async with stack_with(SAY, say("ok"), rules=[{"tool": "echo", "action": "ask"}]) as (stack, _):
        began, ended = anyio.Event(), anyio.Event()

        async def polite(event: ApprovalRequest, next_: Next[ApprovalOutcome]) -> ApprovalOutcome:
            began.set()
            await event.signal.wait()
            ended.set()
            return "allowed-once"

        stack.ctx.on(ApprovalRequest, polite)
        stack.agent.followup("go")
        with anyio.fail_after(5):
            await began.wait()
            stack.agent.cancel()
            await stack.agent.when_idle()
        assert ended.is_set()
        assert last_result(stack)[1] == "ABORTED_BEFORE_DISPATCH"
        decided = [e.data for e in stack.agent.session.events if e.type == "approval/decided"]
        assert [each.outcome for each in decided if isinstance(each, ApprovalDecided)] == [
            "cancelled"
        ]


async def test_C66_a_question_left_open_by_a_crash_is_decided_on_resume() -> None:
    async with stack_with() as (stack, service):
        other = await stack.ctx.agents.create(
            provider="test",
            model="m",
            seed=[
                event_from_json(each)
                for each in (
                    {"type": "turn/start", "seq": 0, "time": 0, "data": {"turn": 1}},
                    {
                        "type": "approval/asked",
                        "seq": 1,
                        "time": 0,
                        "data": {"id": "q1", "toolName": "bash", "newField": 1},
                    },
                    {
                        "type": "turn/end",
                        "seq": 2,
                        "time": 0,
                        "data": {"turn": 1, "reason": {"kind": "interrupted"}},
                    },
                )
            ],
        )
        decided = [e.data for e in other.agent.session.events if e.type == "approval/decided"]
        assert decided == [ApprovalDecided(id="q1", outcome="cancelled")]
        assert service.state(other.agent).pending == ()


async def test_C112_the_state_is_a_projection_that_reads_foreign_logs() -> None:
    async with stack_with() as (stack, _):
        session = stack.agent.session
        session.append(TurnStart(turn=1))
        for data in (
            {"type": "approval/policy", "data": {"policy": "never", "source": "x", "by": 1}},
            {"type": "approval/asked", "data": {"id": "q", "toolName": "bash", "more": [1]}},
        ):
            event = event_from_json({**data, "seq": 0, "time": 0})
            assert isinstance(event.data, ApprovalPolicyEvent | ApprovalAsked)
            session.append(event.data)
        view = stack.ctx.session_projections.snapshot(session, ["approval"]).values["approval"]
        assert view == {"policy": "never", "pending": [{"id": "q", "toolName": "bash"}]}


async def test_C111_nothing_of_it_enters_the_history_of_the_model() -> None:
    async with stack_with(SAY, say("ok"), rules=[{"tool": "echo", "action": "ask"}]) as (stack, _):
        approve(stack)
        await stack.run("go")
        messages = stack.agent.session.derive_messages()
        roles = [m.role for m in messages if m.source.kind != "runtime-context"]
        assert roles == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    ("config", "where"),
    [
        pytest.param({"policy": "always"}, "policy", id="policy"),
        pytest.param({"rules": [{"tool": "a", "action": "run"}]}, "rules.0.action", id="action"),
        pytest.param({"rules": [{"action": "deny"}]}, "rules.0.tool", id="tool"),
        pytest.param(
            {"rules": [{"tool": "a", "action": "deny", "arguments": {"n": 3}}]},
            "rules.0.arguments.n",
            id="pattern",
        ),
        pytest.param({"rule": []}, "rule", id="key"),
        pytest.param(
            {"rules": [{"tool": "{write,edit}", "action": "deny"}]}, "rules.0.tool", id="braces"
        ),
        pytest.param({"rules": [{"tool": "a, b", "action": "deny"}]}, "rules.0.tool", id="list"),
    ],
)
async def test_C109_configuration_is_checked(config: dict[str, object], where: str) -> None:
    async with stack_with() as (stack, _):
        await stack.ctx.unplug(dsh_approval)
        with pytest.raises(ConfigError) as caught:
            await stack.ctx.plugin(dsh_approval, config)
        assert where in [path for path, _ in caught.value.problems]
