"""The public handle: input, cancellation, waits, maintenance, status."""

import anyio
import anyio.lowlevel
import pytest

from dsh_agent import (
    AgentBusyError,
    AgentCancelledError,
    AgentError,
    AgentSelfWaitError,
    AgentStatusChanged,
    InboxError,
    InboxInserted,
    ModelSelection,
    PreStep,
    PreStepDecision,
    TurnStopping,
)
from dsh_agent_loop.testing import loop_stack, say
from dsh_brand import HarnessError
from dsh_cordis import Next
from dsh_llm import (
    AbortSignal,
    ModelSource,
    create_assistant_message,
    create_user_message,
    message_text,
)
from dsh_session import (
    Aborted,
    ErrorEnd,
    HookCancel,
    ReentrantAppendError,
    SessionEventAppended,
    TurnEnd,
    UserCancel,
)


def endings(events: object) -> list[object]:
    """The reasons of the closed turns."""
    assert isinstance(events, list)
    return [event.data.reason for event in events if isinstance(event.data, TurnEnd)]


async def test_A4_A12_a_wake_after_an_abort_runs_in_a_turn_of_its_own() -> None:
    async with loop_stack() as stack:

        async def hang() -> None:
            await anyio.sleep_forever()

        stack.model.replies = [[lambda: stack.agent.cancel(), hang], say("ok")]

        async def entered(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            event.signal.observe(lambda: stack.agent.steer("S") if event.turn == 1 else None)
            return await next_()

        stack.ctx.on(PreStep, entered, everywhere=True)
        lines = await stack.run("M")
        at = lines.index("agent/inbox/spliced next-turn@0 +S")
        assert [
            line for line in lines[at:] if line.startswith(("turn", "~status", "~claimed"))
        ] == [
            "turn/end 1 aborted",
            "~status idle",
            "~status running",
            "turn/start 2",
            "~claimed S turn 2",
            "turn/end 2 completed",
            "~status idle",
        ]


async def test_A9_A24_cancel_discards_what_is_pending_next_step_first() -> None:
    async with loop_stack() as stack:
        stack.agent.inbox.append("next-turn", create_user_message("T"))
        stack.agent.inject("S")
        stack.recorder.take()
        stack.agent.cancel()
        assert stack.recorder.take() == [
            "agent/inbox/spliced next-step@0 -1 canceled",
            "~discarded S",
            "agent/inbox/spliced next-turn@0 -1 canceled",
            "~discarded T",
        ]
        stack.agent.inject("kept")
        stack.agent.cancel(keep_inbox=True)
        assert len(stack.agent.inbox.next_step) == 1


async def test_A10_a_refused_clear_does_not_prevent_the_abort() -> None:
    async with loop_stack() as stack:

        async def hang() -> None:
            await anyio.sleep_forever()

        stack.model.replies = [[hang]]
        stack.agent.followup("M")
        stack.agent.inject("pending")
        refused: list[HarnessError] = []

        def reenter(event: SessionEventAppended) -> None:
            if event.event.type != "step/start":
                return
            try:
                stack.agent.cancel()
            except HarnessError as error:
                refused.append(error)

        stack.ctx.on(SessionEventAppended, reenter, everywhere=True)
        with anyio.fail_after(5):
            await stack.agent.when_idle()
        assert [type(error) for error in refused] == [ReentrantAppendError]
        assert stack.recorder.take()[-3:] == ["step/end 1.1", "turn/end 1 aborted", "~status idle"]


async def test_A11_the_first_cause_wins() -> None:
    async with loop_stack() as stack:
        stack.agent.followup("M")
        stack.agent.cancel(HookCancel(reason="budget"))
        stack.agent.cancel()
        with anyio.fail_after(5):
            await stack.agent.when_idle()
        expected = Aborted(reason=HookCancel(reason="budget"))
        assert endings(list(stack.agent.session.events)) == [expected]


async def test_A13_waiting_for_oneself_is_an_error() -> None:
    async with loop_stack(say("hi")) as stack:
        caught: list[AgentSelfWaitError] = []

        async def wait(event: TurnStopping) -> None:
            try:
                await stack.agent.when_idle()
            except AgentSelfWaitError as error:
                caught.append(error)

        stack.ctx.on(TurnStopping, wait, everywhere=True)
        await stack.run("M")
        assert len(caught) == 1


async def test_A14_maintenance_excludes_turns_and_is_exclusive() -> None:
    async with loop_stack() as stack:

        async def outer(signal: AbortSignal) -> str:
            with pytest.raises(AgentBusyError):
                await stack.agent.run_maintenance(inner)
            assert stack.agent.status == "idle"
            return "value"

        async def inner(signal: AbortSignal) -> None:
            raise AssertionError("never called")

        assert await stack.agent.run_maintenance(outer) == "value"
        assert stack.recorder.take() == []


async def test_A14_cancel_cuts_maintenance_short() -> None:
    async with loop_stack() as stack:

        async def task(signal: AbortSignal) -> None:
            stack.agent.cancel()
            await anyio.sleep_forever()

        with pytest.raises(AgentCancelledError) as caught, anyio.fail_after(5):
            await stack.agent.run_maintenance(task)
        assert caught.value.cause == UserCancel()
        with anyio.fail_after(5):
            await stack.agent.when_idle()


async def test_A16_status_notifications_are_first_in_first_out() -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        seen: list[tuple[str, str]] = []

        def first(event: AgentStatusChanged) -> None:
            if event.status == "idle" and len(seen) == 1:
                stack.agent.followup("N")

        def second(event: AgentStatusChanged) -> None:
            seen.append((event.status, stack.agent.status))

        stack.ctx.on(AgentStatusChanged, first, everywhere=True)
        stack.ctx.on(AgentStatusChanged, second, everywhere=True)
        await stack.run("M")
        assert seen == [
            ("running", "running"),
            ("idle", "running"),
            ("running", "running"),
            ("idle", "idle"),
        ]


async def test_A19_A20_the_inbox_as_a_list() -> None:
    async with loop_stack() as stack:
        inbox = stack.agent.inbox
        one, two, three = (create_user_message(text) for text in ("1", "2", "3"))
        inbox.append("next-turn", two)
        inbox.prepend("next-turn", one)
        with pytest.raises(InboxError) as caught:
            inbox.append("next-step", one)
        assert caught.value.code == "INBOX_DUPLICATE_MESSAGE"
        assert inbox.replace(two.id, three)
        assert not inbox.replace("unknown", two)
        assert inbox.next_turn == (one, three)
        assert inbox.splice("next-turn", -1, 99, ()) == (three,)
        assert inbox.remove(one.id)
        assert not inbox.remove(one.id)
        assert stack.recorder.take() == [
            "agent/inbox/spliced next-turn@0 +2",
            "~inserted 2",
            "agent/inbox/spliced next-turn@0 +1",
            "~inserted 1",
            "agent/inbox/spliced next-turn@1 -1 +3 canceled",
            "~discarded 2",
            "~inserted 3",
            "agent/inbox/spliced next-turn@1 -1 canceled",
            "~discarded 3",
            "agent/inbox/spliced next-turn@0 -1 canceled",
            "~discarded 1",
        ]
        inbox.clear()
        assert stack.recorder.take() == []


async def test_A35_a_selection_made_behind_the_claim_waits_for_the_next_step() -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        stack.agent.followup("M")
        stack.agent.model.select(ModelSelection(provider="test", model="n"))
        with anyio.fail_after(5):
            await stack.agent.when_idle()
        assert await stack.run("N")
        assert [request.model for request in stack.model.requests] == ["m", "n"]
        current = stack.agent.model.current()
        assert current == ModelSelection(provider="test", model="n")
        length = stack.agent.session.seq
        stack.agent.model.select(ModelSelection(provider="test", model="n"))
        assert stack.agent.session.seq == length


async def test_A68_input_behind_a_failed_turn_stays_pending() -> None:
    async with loop_stack() as stack:

        async def broken(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            raise RuntimeError("policy is broken")

        handle = stack.ctx.on(PreStep, broken, everywhere=True)
        errors: list[tuple[int, int, str]] = []
        stack.ctx.on(
            AgentError, lambda e: errors.append((e.turn, e.step, str(e.error))), everywhere=True
        )
        stack.agent.followup("M")
        stack.agent.followup("N")
        with anyio.fail_after(5):
            await stack.agent.when_idle()
        assert errors == [(1, 0, "policy is broken")]
        reasons = endings(list(stack.agent.session.events))
        assert len(reasons) == 1
        assert isinstance(reasons[0], ErrorEnd)
        assert reasons[0].error.code == "UNKNOWN"
        assert len(stack.agent.inbox.next_turn) == 1
        handle()
        stack.model.replies = [say("a"), say("b")]
        stack.agent.steer("go on")
        with anyio.fail_after(5):
            await stack.agent.when_idle()
        assert not stack.agent.inbox.next_turn


async def test_A72_an_emptied_wake_closes_its_turn_without_a_step() -> None:
    async with loop_stack() as stack:

        def take_back(event: InboxInserted) -> None:
            stack.agent.inbox.remove(event.message.id)

        stack.ctx.on(InboxInserted, take_back, everywhere=True)
        lines = await stack.run("M")
        assert lines[-5:] == [
            "turn/start 1",
            "~assemble",
            "~pre-step [] 1.1",
            "turn/end 1 completed",
            "~status idle",
        ]
        assert stack.model.requests == []


async def test_A73_idle_means_that_listener_tasks_have_ended() -> None:
    async with loop_stack(say("hi")) as stack:
        ended: list[str] = []

        async def slow(event: AgentStatusChanged) -> None:
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            ended.append(event.status)

        stack.ctx.on(AgentStatusChanged, slow, everywhere=True)
        await stack.run("M")
        assert ended == ["running", "idle"]
        assert stack.ctx.agent_loop.census(stack.agent) == []


async def test_A73_a_listener_task_may_wait_for_idle_itself() -> None:
    async with loop_stack(say("hi")) as stack:
        waited: list[str] = []

        async def wait(event: AgentStatusChanged) -> None:
            if event.status == "running":
                await stack.agent.when_idle()
                waited.append(stack.agent.status)

        stack.ctx.on(AgentStatusChanged, wait, everywhere=True)
        await stack.run("M")
        with anyio.fail_after(5):
            while stack.ctx.agent_loop.census(stack.agent):
                await anyio.lowlevel.checkpoint()
        assert waited == ["idle"]


async def test_A73_a_listener_task_that_goes_on_is_cancelled_after_its_grace() -> None:
    async with loop_stack(say("hi"), config={"listener_grace_ms": 10}) as stack:
        ended: list[str] = []

        async def forever(event: AgentStatusChanged) -> None:
            try:
                await anyio.sleep_forever()
            finally:
                ended.append(event.status)

        stack.ctx.on(AgentStatusChanged, forever, everywhere=True)
        await stack.run("M")
        assert sorted(ended) == ["idle", "running"]


async def test_A6_A75_a_refused_turn_start_is_told_and_uses_no_number() -> None:
    async with loop_stack(say("hi")) as stack:
        with stack.refusing("turn/start") as broken:
            lines = await stack.run("M")
            assert lines[-3:] == ["~status running", "~agent/error 0.0", "~status idle"]
            broken.clear()
            assert "turn/start 1" in await stack.run("N")


async def test_A75_a_turn_that_could_not_be_closed_is_closed_by_the_next_driver() -> None:
    async with loop_stack(say("hi"), say("again")) as stack:
        with stack.refusing("turn/end") as broken:
            lines = await stack.run("M")
            assert lines[-2:] == ["~agent/error 1.1", "~status idle"]
            broken.clear()
            lines = await stack.run("N")
        at = lines.index("~status running")
        assert lines[at : at + 3] == ["~status running", "turn/end 1 completed", "turn/start 2"]
        assert lines[-2:] == ["turn/end 2 completed", "~status idle"]


async def test_A82_A118_an_exception_that_arrives_with_the_abort_is_not_reported() -> None:
    async with loop_stack() as stack:

        async def broken(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            stack.agent.cancel()
            raise RuntimeError("lost in the abort")

        stack.ctx.on(PreStep, broken, everywhere=True)
        lines = await stack.run("M")
        assert lines[-2:] == ["turn/end 1 aborted", "~status idle"]
        assert not [line for line in lines if line.startswith("~agent/error")]


async def test_A73_A125_a_listener_task_counts_without_a_driver() -> None:
    async with loop_stack() as stack:
        ended: list[str] = []

        async def slow(event: InboxInserted) -> None:
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            ended.append(event.message.id)

        stack.ctx.on(InboxInserted, slow, everywhere=True)
        stack.agent.inject("I")
        with anyio.fail_after(5):
            await stack.agent.when_idle()
        assert len(ended) == 1


async def test_A3_only_user_messages_are_input() -> None:
    async with loop_stack() as stack:
        answer = create_assistant_message((), ModelSource(provider="p", model="m"))
        with pytest.raises(InboxError) as caught:
            stack.agent.followup(answer)
        assert caught.value.code == "INBOX_INVALID_MESSAGE"
        assert stack.recorder.take() == []


async def test_case_37_a_follow_up_sent_at_any_moment_of_a_turn_runs() -> None:
    """F-097: input that came while a turn ended waited for the next wake, for ever."""
    after, behind = 0, False
    while not behind:
        async with loop_stack(say("a"), say("b")) as stack:
            stack.agent.followup("M")
            for _ in range(after):
                await anyio.lowlevel.checkpoint()
            behind = stack.agent.status == "idle"
            stack.agent.followup("N")
            with anyio.fail_after(5):
                await stack.agent.when_idle()
            assert len(endings(list(stack.agent.session.events))) == 2
            told = [message_text(m) for m in stack.model.requests[-1].messages if m.role == "user"]
            assert told == ["M", "N"], after
            assert (stack.agent.inbox.next_turn, stack.agent.status) == ((), "idle")
        after += 1
    assert after > 5


async def test_case_37_a_follow_up_from_the_last_notification_of_a_turn_runs() -> None:
    async with loop_stack(say("a"), say("b")) as stack:

        def again(event: AgentStatusChanged) -> None:
            if event.status == "idle" and len(stack.model.requests) == 1:
                event.agent.followup("N")

        stack.ctx.on(AgentStatusChanged, again, everywhere=True)
        lines = await stack.run("M")
        assert [line for line in lines if line.startswith("turn/end")] == [
            "turn/end 1 completed",
            "turn/end 2 completed",
        ]
