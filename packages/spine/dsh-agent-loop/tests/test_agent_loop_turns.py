"""The event lists of the contract, compared whole."""

import anyio

from dsh_agent import (
    AgentError,
    AgentRequestError,
    Enter,
    PreStep,
    PreStepDecision,
    Reject,
    Retry,
    TurnStopping,
)
from dsh_agent_loop.testing import call, cut, fail, loop_stack, say
from dsh_cordis import Next

OPEN = [
    "agent/inbox/spliced next-turn@0 +M",
    "~inserted M",
    "~status running",
    "turn/start 1",
    "agent/inbox/spliced next-turn@0 -1",
    "~claimed M turn 1",
]
STEP = ["~assemble", "~pre-step [M] 1.1", "step/start 1.1", "~request"]
COMMIT = ["system/message", "user/message M", "request/header initial", "request/context"]
STREAM = ["~llm/stream", "~start", "~chunk 0", "~chunk 1", "~chunk 2", "~chunk 3"]
SAID = ["assistant/message", "~end 4 message", "step/end 1.1"]
END = ["~turn-stopping", "turn/end 1 completed", "~status idle"]


async def test_A76_A80_A81_listT1_a_plain_turn() -> None:
    async with loop_stack(say("hi")) as stack:
        assert await stack.run("M") == [*OPEN, *STEP, *COMMIT, *STREAM, *SAID, *END]


async def test_A5_listT1_the_call_returns_behind_the_claim() -> None:
    async with loop_stack(say("hi")) as stack:
        stack.agent.followup("M")
        assert stack.recorder.take() == OPEN
        assert stack.agent.status == "running"


async def test_A99_A100_listT1_a_second_turn_logs_only_what_changed() -> None:
    async with loop_stack(say("hi"), say("again")) as stack:
        await stack.run("M")
        assert await stack.run("N") == [
            "agent/inbox/spliced next-turn@0 +N",
            "~inserted N",
            "~status running",
            "turn/start 2",
            "agent/inbox/spliced next-turn@0 -1",
            "~claimed N turn 2",
            "~assemble",
            "~pre-step [N] 2.1",
            "step/start 2.1",
            "~request",
            "user/message N",
            *STREAM,
            "assistant/message",
            "~end 4 message",
            "step/end 2.1",
            "~turn-stopping",
            "turn/end 2 completed",
            "~status idle",
        ]


async def test_A26_A77_listT4_a_rejected_turn() -> None:
    async with loop_stack() as stack:

        async def reject(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            return Reject()

        stack.ctx.on(PreStep, reject, everywhere=True)
        assert await stack.run("M") == [*OPEN, *STEP[:2], "turn/end 1 blocked", "~status idle"]


async def test_A77_listT5_a_batch_rewritten_to_empty() -> None:
    async with loop_stack() as stack:

        async def empty(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            return Enter(())

        stack.ctx.on(PreStep, empty, everywhere=True)
        assert await stack.run("M") == [*OPEN, *STEP[:2], "turn/end 1 completed", "~status idle"]


async def test_A80_listT6_steering_while_the_reply_streams() -> None:
    async with loop_stack() as stack:
        first = say("hi")
        first.insert(2, lambda: stack.agent.steer("S"))
        stack.model.replies = [first, say("ok")]
        lines = await stack.run("M")
        assert lines[len(OPEN) + len(STEP) + len(COMMIT) :] == [
            *STREAM[:4],
            "agent/inbox/spliced next-step@0 +S",
            "~inserted S",
            *STREAM[4:],
            *SAID,
            "agent/inbox/spliced next-step@0 -1",
            "~claimed S turn 1",
            "~assemble",
            "~pre-step [S] 1.2",
            "step/start 1.2",
            "~request",
            "user/message S",
            *STREAM,
            "assistant/message",
            "~end 4 message",
            "step/end 1.2",
            *END,
        ]


async def test_A25_listT7_injected_input_waits_for_a_turn() -> None:
    async with loop_stack(say("hi")) as stack:
        stack.agent.inject("I")
        assert stack.recorder.take() == ["agent/inbox/spliced next-step@0 +I", "~inserted I"]
        await anyio.wait_all_tasks_blocked()
        assert stack.agent.status == "idle"
        lines = await stack.run("M")
        assert lines[:11] == [
            "agent/inbox/spliced next-turn@0 +M",
            "~inserted M",
            "~status running",
            "turn/start 1",
            "agent/inbox/spliced next-step@0 -1",
            "agent/inbox/spliced next-turn@0 -1",
            "~claimed I turn 1",
            "~claimed M turn 1",
            "~assemble",
            "~pre-step [I M] 1.1",
            "step/start 1.1",
        ]


async def test_A82_listT8_cancel_before_the_first_chunk() -> None:
    async with loop_stack() as stack:
        asked = anyio.Event()

        async def hang() -> None:
            asked.set()
            await anyio.sleep_forever()

        stack.model.replies = [[hang, *say("never")]]
        stack.agent.followup("M")
        with anyio.fail_after(5):
            await asked.wait()
        stack.recorder.take()
        stack.agent.cancel()
        with anyio.fail_after(5):
            await stack.agent.when_idle()
        assert stack.recorder.take() == [
            "assistant/attempt",
            "~end 0 attempt",
            "step/end 1.1",
            "turn/end 1 aborted",
            "~status idle",
        ]
        assert stack.model.closed == 1


async def test_A82_listT8_cancel_behind_the_claim_leaves_no_step() -> None:
    async with loop_stack(say("hi")) as stack:
        stack.agent.followup("M")
        stack.agent.cancel()
        with anyio.fail_after(5):
            await stack.agent.when_idle()
        assert stack.recorder.take() == [*OPEN, "turn/end 1 aborted", "~status idle"]


async def test_A103_listT9_cancel_in_the_middle_of_a_reply() -> None:
    async with loop_stack() as stack:
        reply = say("half a thought")
        reply.insert(2, stack_cancel := (lambda: stack.agent.cancel()))
        assert callable(stack_cancel)
        stack.model.replies = [reply]
        lines = await stack.run("M")
        assert lines[-7:] == [
            "~chunk 0",
            "~chunk 1",
            "assistant/message interrupted",
            "~end 2 message",
            "step/end 1.1",
            "turn/end 1 aborted",
            "~status idle",
        ]


async def test_A93_listT14_a_failure_that_somebody_retries() -> None:
    async with loop_stack(fail(), say("hi")) as stack:

        async def again(event: AgentRequestError, next_: Next[Retry | None]) -> Retry | None:
            return Retry()

        stack.ctx.on(AgentRequestError, again, everywhere=True)
        lines = await stack.run("M")
        assert lines[len(OPEN) + len(STEP) :] == [
            *COMMIT,
            "~llm/stream",
            "~start",
            "~chunk 0",
            "assistant/attempt",
            "~end 1 attempt",
            "~request-error SERVER",
            "~request",
            *STREAM,
            *SAID,
            *END,
        ]


async def test_A47_A84_listT15_a_failure_that_nobody_retries() -> None:
    async with loop_stack(fail()) as stack:
        errors: list[BaseException] = []
        stack.ctx.on(AgentError, lambda event: errors.append(event.error), everywhere=True)
        lines = await stack.run("M")
        assert lines[-7:] == [
            "assistant/attempt",
            "~end 1 attempt",
            "~request-error SERVER",
            "step/end 1.1",
            "~agent/error 1.1",
            "turn/end 1 error",
            "~status idle",
        ]
        assert [str(error) for error in errors] == ["overloaded"]


async def test_A81_listT16_a_reply_that_hits_the_output_limit() -> None:
    async with loop_stack(cut("half")) as stack:
        lines = await stack.run("M")
        assert lines[-6:] == [
            "assistant/message",
            "~end 3 message",
            "step/end 1.1",
            "~turn-stopping",
            "turn/end 1 max-tokens",
            "~status idle",
        ]


async def test_A80_listT18_steering_when_the_turn_would_stop() -> None:
    async with loop_stack(say("hi"), say("ok")) as stack:
        steered: list[int] = []

        async def steer_once(event: TurnStopping) -> None:
            if not steered:
                steered.append(event.turn)
                event.agent.steer("S")

        stack.ctx.on(TurnStopping, steer_once, everywhere=True)
        lines = await stack.run("M")
        end = lines.index("~turn-stopping")
        assert lines[end:] == [
            "~turn-stopping",
            "agent/inbox/spliced next-step@0 +S",
            "~inserted S",
            "agent/inbox/spliced next-step@0 -1",
            "~claimed S turn 1",
            "~assemble",
            "~pre-step [S] 1.2",
            "step/start 1.2",
            "~request",
            "user/message S",
            *STREAM,
            "assistant/message",
            "~end 4 message",
            "step/end 1.2",
            *END,
        ]


async def test_A15_A67_listT19_two_follow_ups_in_one_tick() -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        stack.agent.followup("M")
        lines = await stack.run("N")
        assert lines[len(OPEN) : len(OPEN) + 2] == [
            "agent/inbox/spliced next-turn@0 +N",
            "~inserted N",
        ]
        first_end = lines.index("turn/end 1 completed")
        assert lines[first_end : first_end + 4] == [
            "turn/end 1 completed",
            "turn/start 2",
            "agent/inbox/spliced next-turn@0 -1",
            "~claimed N turn 2",
        ]
        assert [line for line in lines if line.startswith("~status")] == [
            "~status running",
            "~status idle",
        ]


async def test_A8_listT20_a_follow_up_behind_maintenance() -> None:
    async with loop_stack(say("hi")) as stack:

        async def task(signal: object) -> int:
            stack.agent.followup("M")
            stack.recorder.note("task ends")
            return 7

        assert await stack.agent.run_maintenance(task) == 7
        with anyio.fail_after(5):
            await stack.agent.when_idle()
        lines = stack.recorder.take()
        assert lines[:6] == [
            "agent/inbox/spliced next-turn@0 +M",
            "~inserted M",
            "task ends",
            "~status running",
            "turn/start 1",
            "agent/inbox/spliced next-turn@0 -1",
        ]
        assert lines[-1] == "~status idle"


async def test_A77_an_unknown_tool_is_answered_and_owes_a_request() -> None:
    async with loop_stack(call(("c1", "nope", "{}")), say("sorry")) as stack:
        lines = await stack.run("M")
        at = lines.index("tool/call c1")
        assert lines[at : at + 12] == [
            "tool/call c1",
            "~pre c1",
            "~execute c1",
            "~post c1",
            "~result c1",
            "tool/result c1 UNKNOWN_TOOL",
            "step/end 1.1",
            "~assemble",
            "~pre-step [] 1.2 owed",
            "step/start 1.2",
            "~request",
            "~llm/stream",
        ]
