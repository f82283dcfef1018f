"""The executor: what it repeats, what it leaves in the log, how it ends."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

import dsh_llm_scripted
from dsh_agent import AgentRequestError, Retry
from dsh_agent_loop.invariant import invariant
from dsh_agent_loop.testing import Recorder
from dsh_brand import JsonValue
from dsh_cordis import Context, Fiber, Next
from dsh_cordis.testing import assert_unloaded
from dsh_llm import (
    AbortController,
    AbortedFinish,
    ErrorFinish,
    FinishChunk,
    LlmFailure,
    RetryPolicyConfig,
    StreamChunk,
    message_text,
    resolve_retry_policy,
)
from dsh_llm_retry import LlmRetry, LlmRetryStarted, check_retries, mount
from dsh_llm_retry.testing import ManualSleep
from dsh_llm_scripted import ScriptedAdapter, ScriptedRoute, text_chunks
from dsh_session import SessionEventAppended, TurnEnd, encode_event, interrupted_turn_closers
from dsh_spine import SpineContext, spine

BACKOFF: Mapping[str, float] = {"initialDelayMs": 100, "maxDelayMs": 1000, "jitterRatio": 0}
NORMAL: Mapping[str, JsonValue] = {"backoff": BACKOFF}
ALWAYS: Mapping[str, JsonValue] = {"mode": "always", "backoff": BACKOFF}
ASKED = 70
"""The first turn number of failures that no turn of the loop had."""


def broken(
    code: str = "SERVER", message: str = "overloaded", after_ms: float | None = None
) -> list[StreamChunk]:
    failure = LlmFailure(message=message, code=code, provider_retry_after_ms=after_ms)
    return [FinishChunk(ErrorFinish(failure))]


class Stack:
    """A spine with the executor, one agent, and a clock that the test holds."""

    def __init__(self, ctx: Context, adapter: ScriptedAdapter, sleep: ManualSleep) -> None:
        self.ctx = ctx
        self.adapter = adapter
        self.sleep = sleep
        self.fiber = ctx.plugin(self._plugin)

    def _plugin(self, ctx: Context) -> None:
        mount(ctx, chance=lambda: 0.5, sleep=self.sleep)

    async def open(self) -> None:
        await self.ctx.settled()
        self.agents: SpineContext = self.ctx  # type: ignore[assignment]  # a root serves every key
        self.handle = await self.agents.agents.create(provider="test", model="m")
        self.agent = self.handle.agent
        self.recorder = Recorder(self.ctx)

    async def run(self) -> list[str]:
        self.agent.followup("go")
        with anyio.fail_after(5):
            await self.agent.when_idle()
        return self.recorder.take()

    async def ask(
        self,
        inner: Next[Retry | None] | None = None,
        *,
        policy: RetryPolicyConfig | None = None,
        turn: int = ASKED,
        provider: str = "test",
        failure: LlmFailure | None = None,
        signal: AbortController | None = None,
    ) -> Retry | None:
        """Dispatch a failure as the loop does."""
        event = AgentRequestError(
            agent=self.agent,
            turn=turn,
            step=1,
            provider=provider,
            failure=failure or LlmFailure(message="m", code="SERVER"),
            retry_policy=resolve_retry_policy(policy or NORMAL),
            signal=(signal or AbortController()).signal,
        )
        return await self.ctx.waterfall(event, inner or nobody)

    @property
    def retries(self) -> list[LlmRetry]:
        return [e.data for e in self.agent.session.events if isinstance(e.data, LlmRetry)]

    @property
    def started(self) -> list[LlmRetryStarted]:
        return [e.data for e in self.agent.session.events if isinstance(e.data, LlmRetryStarted)]

    @property
    def ending(self) -> str:
        last = self.agent.session.events[-1].data
        assert isinstance(last, TurnEnd)
        return str(last.reason.__struct_config__.tag)


@asynccontextmanager
async def retrying(
    *answers: Sequence[StreamChunk], policy: RetryPolicyConfig = NORMAL, held: bool = False
) -> AsyncIterator[Stack]:
    adapter = ScriptedAdapter(answers, routes={"test": ScriptedRoute(retry_policy=policy)})
    async with Context() as ctx:
        ctx.plugin(spine, {"system_prompt": {"include_harness_identity": False}})
        ctx.plugin(invariant)
        ctx.plugin(dsh_llm_scripted, adapter)
        stack = Stack(ctx, adapter, ManualSleep(held=held))
        await stack.open()
        yield stack
    # Failures that a test dispatched by itself stand in no turn.
    check_retries([e for e in stack.agent.session.events if getattr(e.data, "turn", 0) < ASKED])
    assert_unloaded(ctx)


async def nobody() -> Retry | None:
    return None


class Asked:
    """The rest of the waterfall: notes that it was asked."""

    def __init__(self, answer: Retry | None = None, error: Exception | None = None) -> None:
        self.count = 0
        self._answer = answer
        self._error = error

    async def __call__(self) -> Retry | None:
        self.count += 1
        if self._error is not None:
            raise self._error
        return self._answer


async def test_L81_L86_T14_a_retry_repeats_the_request_in_the_same_step() -> None:
    async with retrying(broken(), text_chunks("hello", usage=None)) as stack:
        lines = await stack.run()
        begin = lines.index("~request-error SERVER")
        assert lines[begin - 2 :][:9] == [
            "assistant/attempt",
            "~end 1 attempt",
            "~request-error SERVER",
            "llm/retry",
            "llm/retry-started",
            "~request",
            "~llm/stream",
            "~start",
            "~chunk 0",
        ]
        assert [line for line in lines if line.startswith(("step/", "turn/"))] == [
            "turn/start 1",
            "step/start 1.1",
            "step/end 1.1",
            "turn/end 1 completed",
        ]
        first, second = stack.adapter.requests
        assert first.messages == second.messages
        assert stack.sleep.waits_s == [0.1]
        record = stack.retries[0]
        assert record == LlmRetry(
            retry_id=record.retry_id,
            turn=1,
            step=1,
            provider="test",
            mode="normal",
            policy_key='["normal",20,["EMPTY_RESPONSE","RATE_LIMIT","SERVER","STREAM_CLOSED",'
            '"TIMEOUT","TRANSPORT"],100,1000,0]',
            retry=1,
            max_retries=20,
            delay_ms=100,
            failure=LlmFailure(message="overloaded", code="SERVER"),
        )
        assert stack.started == [LlmRetryStarted(retry_id=record.retry_id, turn=1, step=1, retry=1)]


async def test_L86_the_records_have_their_keys_and_no_model_sees_them() -> None:
    secret = "what the provider said"
    async with retrying(broken(message=secret), text_chunks("hello")) as stack:
        await stack.run()
        events = stack.agent.session.events
        (retry,) = [e for e in events if e.type == "llm/retry"]
        (start,) = [e for e in events if e.type == "llm/retry-started"]
        assert retry.surface_op is None
        assert start.surface_op is None
        key = stack.retries[0].policy_key.replace('"', '\\"')
        chain = stack.retries[0].retry_id
        assert encode_event(retry).decode() == (
            f'{{"type":"llm/retry","seq":{retry.seq},"time":{retry.time},"data":{{'
            f'"retryId":"{chain}","turn":1,"step":1,"provider":"test","mode":"normal",'
            f'"policyKey":"{key}","retry":1,"maxRetries":20,"delayMs":100,'
            f'"failure":{{"message":"{secret}","code":"SERVER"}}}}}}'
        )
        assert f'"data":{{"retryId":"{chain}","turn":1,"step":1,"retry":1}}' in (
            encode_event(start).decode()
        )
        sent = [message_text(m) for m in stack.adapter.requests[1].messages]
        derived = [message_text(m) for m in stack.agent.session.derive_messages()]
        assert secret not in " ".join([*sent, *derived])


async def test_L81_an_aborted_finish_is_repeated_like_an_error() -> None:
    cut = [FinishChunk(AbortedFinish(LlmFailure(message="gone", code="TRANSPORT")))]
    async with retrying(cut, text_chunks("hello")) as stack:
        await stack.run()
        assert stack.ending == "completed"


async def test_L82_T15_a_code_that_is_not_listed_ends_the_turn() -> None:
    async with retrying(broken("AUTH"), text_chunks("never")) as stack:
        lines = await stack.run()
        assert lines[lines.index("~request-error AUTH") :] == [
            "~request-error AUTH",
            "step/end 1.1",
            "~agent/error 1.1",
            "turn/end 1 error",
            "~status idle",
        ]
        assert stack.retries == []


async def test_L82_L83_a_spent_budget_ends_the_turn() -> None:
    policy = {**NORMAL, "maxRetries": 2}
    async with retrying(broken(), broken(), broken(), policy=policy) as stack:
        await stack.run()
        assert stack.ending == "error"
        assert [(r.retry, r.delay_ms) for r in stack.retries] == [(1, 100), (2, 200)]
        assert len({r.retry_id for r in stack.retries}) == 1
        assert len(stack.started) == 2


async def test_L82_no_retries_at_all_always_delegates() -> None:
    policy = {**NORMAL, "maxRetries": 0}
    async with retrying() as stack:
        asked = Asked(Retry())
        assert await stack.ask(asked, policy=policy) == Retry()
        assert asked.count == 1
        assert stack.retries == []


async def test_L82_without_a_policy_others_decide() -> None:
    async with retrying() as stack:
        asked = Asked()
        event = AgentRequestError(
            agent=stack.agent,
            turn=1,
            step=1,
            provider="nowhere",
            failure=LlmFailure(message="m", code="SERVER"),
            retry_policy=None,
            signal=AbortController().signal,
        )
        assert await stack.ctx.waterfall(event, asked) is None
        assert (asked.count, stack.retries) == (1, [])


async def test_L82_a_provider_that_asks_for_too_long_a_wait_is_not_waited_for() -> None:
    async with retrying(broken("RATE_LIMIT", after_ms=1001)) as stack:
        await stack.run()
        assert (stack.ending, stack.retries) == ("error", [])


async def test_L84_a_provider_delay_within_the_limit_is_used_exactly() -> None:
    policy = {"backoff": {**BACKOFF, "jitterRatio": 1}}
    slow = broken("RATE_LIMIT", after_ms=1000)
    async with retrying(slow, text_chunks("hello"), policy=policy) as stack:
        await stack.run()
        assert (stack.sleep.waits_s, stack.retries[0].delay_ms) == ([1.0], 1000)


async def test_L82_L84_always_repeats_any_code_and_falls_back_to_its_own_delay() -> None:
    slow = broken("AUTH", after_ms=5000)
    async with retrying(slow, broken("AUTH"), text_chunks("hello"), policy=ALWAYS) as stack:
        await stack.run()
        assert stack.ending == "completed"
        facts = [(r.mode, r.max_retries, r.retry, r.delay_ms) for r in stack.retries]
        assert facts == [("always", None, 1, 100), ("always", None, 2, 200)]
        assert stack.retries[0].policy_key == '["always",100,1000,0]'


async def test_L82_always_lets_another_recovery_win() -> None:
    async with retrying() as stack:
        asked = Asked(Retry())
        assert await stack.ask(asked, policy=ALWAYS) == Retry()
        assert (asked.count, stack.retries) == (1, [])


async def test_L82_always_goes_on_when_another_recovery_raises() -> None:
    async with retrying() as stack:
        asked = Asked(error=ValueError("broken recovery"))
        assert await stack.ask(asked, policy=ALWAYS) == Retry()
        assert (asked.count, len(stack.retries)) == (1, 1)


async def test_L82_normal_hands_on_what_another_recovery_raises() -> None:
    async with retrying() as stack:
        failure = LlmFailure(message="m", code="AUTH")
        with pytest.raises(ValueError, match="broken recovery"):
            await stack.ask(Asked(error=ValueError("broken recovery")), failure=failure)


async def test_L82_normal_asks_nobody_when_it_repeats() -> None:
    async with retrying() as stack:
        asked = Asked(Retry())
        assert await stack.ask(asked) == Retry()
        assert asked.count == 0


async def test_L83_each_policy_provider_and_turn_counts_for_itself() -> None:
    other = {"backoff": {**BACKOFF, "maxDelayMs": 2000}}
    async with retrying() as stack:
        await stack.ask()
        await stack.ask(policy=other)
        await stack.ask(provider="second")
        await stack.ask()
        await stack.ask(policy=other)
        await stack.ask(turn=ASKED + 1)
        assert [r.retry for r in stack.retries] == [1, 1, 1, 2, 2, 1]
        ids = [r.retry_id for r in stack.retries]
        assert ids[0] == ids[3]
        assert ids[1] == ids[4]
        assert len(set(ids)) == 4


async def test_L83_a_new_step_counts_from_one() -> None:
    async with retrying(
        broken(), text_chunks("one"), broken(), broken(), text_chunks("two")
    ) as stack:
        await stack.run()
        await stack.run()
        assert [(r.turn, r.retry) for r in stack.retries] == [(1, 1), (2, 1), (2, 2)]


async def test_L87_T12_cancelling_the_turn_ends_the_wait_at_once() -> None:
    async with retrying(broken(), text_chunks("never"), held=True) as stack:
        stack.agent.followup("go")
        with anyio.fail_after(5):
            await stack.sleep.began()
            stack.agent.cancel()
            await stack.agent.when_idle()
        lines = stack.recorder.take()
        assert lines[lines.index("assistant/attempt") :] == [
            "assistant/attempt",
            "~end 1 attempt",
            "~request-error SERVER",
            "llm/retry",
            "step/end 1.1",
            "turn/end 1 aborted",
            "~status idle",
        ]
        assert stack.sleep.running == 0
        assert len(stack.adapter.requests) == 1


async def test_L87_an_abort_alone_ends_the_wait_without_native_cancellation() -> None:
    async with retrying(held=True) as stack:
        controller = AbortController()
        answers: list[Retry | None] = []

        async def ask() -> None:
            answers.append(await stack.ask(signal=controller))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await stack.sleep.began()
                controller.abort("enough")
        assert (answers, stack.started) == ([None], [])


@pytest.mark.parametrize("policy", [NORMAL, ALWAYS], ids=["normal", "always"])
async def test_L87_an_aborted_turn_leaves_no_record(policy: RetryPolicyConfig) -> None:
    async with retrying() as stack:
        controller = AbortController()
        controller.abort()
        assert await stack.ask(policy=policy, signal=controller) is None
        assert (stack.retries, stack.sleep.waits_s) == ([], [])


async def test_L87_a_turn_aborted_while_others_decide_leaves_no_record() -> None:
    async with retrying() as stack:
        controller = AbortController()

        async def abort() -> Retry | None:
            controller.abort()
            return None

        assert await stack.ask(abort, policy=ALWAYS, signal=controller) is None
        assert stack.retries == []


def at_the_record(stack: Stack, act: Callable[[], object]) -> None:
    def listen(event: SessionEventAppended) -> None:
        if event.event.type == "llm/retry":
            act()

    stack.ctx.on(SessionEventAppended, listen, everywhere=True)


async def test_L87_a_listener_of_the_record_may_cancel() -> None:
    async with retrying(broken(), text_chunks("never")) as stack:
        at_the_record(stack, stack.agent.cancel)
        await stack.run()
        assert (stack.ending, len(stack.retries), stack.started) == ("aborted", 1, [])
        assert stack.sleep.waits_s == []


async def test_L87_a_listener_of_the_record_may_unload_the_plugin() -> None:
    async with retrying(broken(), text_chunks("never")) as stack:
        at_the_record(stack, stack.fiber.dispose)
        await stack.run()
        assert (stack.ending, len(stack.retries), stack.started) == ("error", 1, [])


async def dispose(fiber: Fiber, done: list[str]) -> None:
    await fiber.dispose()
    done.append("disposed")


async def test_L87_L88_disposal_ends_the_wait_and_returns_no_retry() -> None:
    async with retrying(broken(), text_chunks("never"), held=True) as stack:
        stack.agent.followup("go")
        with anyio.fail_after(5):
            await stack.sleep.began()
            await stack.fiber.dispose()
            assert stack.sleep.running == 0
            await stack.agent.when_idle()
        assert (stack.ending, stack.started) == ("error", [])
        assert len(stack.adapter.requests) == 1


async def test_L88_disposal_waits_for_delegated_recoveries() -> None:
    async with retrying() as stack:
        inside, leave = anyio.Event(), anyio.Event()
        order: list[str] = []

        async def recover() -> Retry | None:
            inside.set()
            await leave.wait()
            order.append("recovered")
            return Retry()

        async def ask() -> None:
            failure = LlmFailure(message="m", code="AUTH")
            assert await stack.ask(recover, failure=failure) == Retry()

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await inside.wait()
                tasks.start_soon(dispose, stack.fiber, order)
                await anyio.wait_all_tasks_blocked()
                assert order == []
                leave.set()
        assert order == ["recovered", "disposed"]


async def test_L87_disposing_the_agent_ends_the_wait() -> None:
    async with retrying(broken(), text_chunks("never"), held=True) as stack:
        stack.agent.followup("go")
        with anyio.fail_after(5):
            await stack.sleep.began()
            await stack.handle.dispose()
        assert (stack.ending, len(stack.retries), stack.started) == ("aborted", 1, [])


async def test_L87_closing_the_root_ends_the_wait() -> None:
    with anyio.fail_after(5):
        async with retrying(broken(), text_chunks("never"), held=True) as stack:
            stack.agent.followup("go")
            await stack.sleep.began()
    assert (stack.sleep.running, stack.started) == (0, [])


async def test_A87_a_log_that_ends_in_a_wait_is_closed_like_any_other() -> None:
    async with retrying(broken(), text_chunks("never"), held=True) as stack:
        stack.agent.followup("go")
        with anyio.fail_after(5):
            await stack.sleep.began()
        killed = list(stack.agent.session.events)
        assert killed[-1].type == "llm/retry"
        closers = interrupted_turn_closers(killed)
        assert [event.type for event in closers] == ["step/end", "turn/end"]
        check_retries([*killed, *closers])


@pytest.mark.parametrize("code", ["SERVER", "AUTH"])
@pytest.mark.parametrize("policy", [NORMAL, ALWAYS], ids=["normal", "always"])
async def test_L88_a_listener_called_after_disposal_answers_nothing_and_asks_nobody(
    policy: RetryPolicyConfig, code: str
) -> None:
    async with retrying() as stack:

        async def late(event: AgentRequestError, next_: Next[Retry | None]) -> Retry | None:
            await stack.fiber.dispose()
            return await next_()

        stack.ctx.on(AgentRequestError, late, prepend=True)
        asked = Asked(Retry())
        failure = LlmFailure(message="m", code=code)
        with anyio.fail_after(5):
            assert await stack.ask(asked, policy=policy, failure=failure) is None
        assert (asked.count, stack.retries) == (0, [])
        with anyio.fail_after(5):
            # By now it is no longer among the listeners.
            assert await stack.ask(asked, policy=policy, failure=failure) == Retry()
        assert asked.count == 1
