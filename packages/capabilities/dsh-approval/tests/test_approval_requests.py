"""Questions: who answers, in which order, and what the log says in the end."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import anyio
import pytest

import dsh_approval
from dsh_agent import Agent
from dsh_approval import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalError,
    ApprovalOutcome,
    ApprovalPolicyEvent,
    ApprovalRequest,
    ApprovalService,
)
from dsh_cordis import Next
from dsh_llm import AbortController, CallId
from dsh_session import Completed, SessionEventAppended, SessionStore, TurnEnd, TurnStart
from dsh_session_projection import SessionProjectionRegistry
from dsh_tools.testing import RecordingCensus, ToolBench, tool_bench


class Asking:
    """A bench with approval and an agent in a turn."""

    def __init__(self, bench: ToolBench) -> None:
        self.bench = bench
        self.agent = bench.agent()
        self.agent.session.append(TurnStart(turn=1))

    @property
    def service(self) -> ApprovalService:
        return cast("ApprovalService", self.bench.ctx.approval)

    def listen(self, answer: Callable[[ApprovalRequest], object]) -> None:
        async def listener(event: ApprovalRequest, next_: Next[ApprovalOutcome]) -> ApprovalOutcome:
            return cast("ApprovalOutcome", answer(event))

        self.bench.ctx.on(ApprovalRequest, listener)

    async def ask(self, **more: object) -> ApprovalOutcome:
        return await self.service.request(self.agent, "bash", **more)  # type: ignore[arg-type]  # as the test says

    def log(self) -> list[object]:
        """Questions and decisions, ids checked and left out."""
        events = [e.data for e in self.agent.session.events]
        asked = [e.id for e in events if isinstance(e, ApprovalAsked)]
        decided = [e.id for e in events if isinstance(e, ApprovalDecided)]
        assert sorted(asked) == sorted(decided)
        assert len(set(asked)) == len(asked)
        return [
            e.tool_name if isinstance(e, ApprovalAsked) else e.outcome
            for e in events
            if isinstance(e, ApprovalAsked | ApprovalDecided)
        ]


@asynccontextmanager
async def asking(**config: object) -> AsyncIterator[Asking]:
    async with tool_bench() as bench:
        await bench.ctx.plugin(SessionStore)
        await bench.ctx.plugin(SessionProjectionRegistry)
        await bench.ctx.plugin(dsh_approval, config)
        await bench.ctx.settled()
        with anyio.fail_after(5):
            yield Asking(bench)


@pytest.mark.parametrize("outcome", ["allowed-once", "rejected", "cancelled", "unavailable"])
async def test_C65_C66_an_answer_is_returned_and_logged(outcome: ApprovalOutcome) -> None:
    async with asking() as at:
        heard: list[ApprovalRequest] = []

        def answer(event: ApprovalRequest) -> ApprovalOutcome:
            heard.append(event)
            return outcome

        at.listen(answer)
        got = await at.ask(call_id=CallId("c1"), reason="it writes")
        assert got == outcome
        asked, decided = [e.data for e in at.agent.session.events][1:]
        assert isinstance(asked, ApprovalAsked)
        assert asked == ApprovalAsked(
            id=heard[0].id, tool_name="bash", call_id=CallId("c1"), reason="it writes"
        )
        assert decided == ApprovalDecided(id=asked.id, outcome=outcome)
        assert (heard[0].tool_name, heard[0].call_id, heard[0].reason) == (
            "bash",
            "c1",
            "it writes",
        )


async def test_C65_outside_a_turn_it_raises_and_logs_nothing() -> None:
    async with asking() as at:
        at.agent.session.append(TurnEnd(turn=1, reason=Completed()))
        with pytest.raises(ApprovalError) as caught:
            await at.ask()
        assert caught.value.code == "APPROVAL_NO_TURN"
        fresh = at.bench.agent()
        with pytest.raises(ApprovalError):
            await at.service.request(fresh, "bash")
        assert at.log() == []
        assert len(fresh.session.events) == 0


async def test_C67_aborted_already_is_cancelled_and_nobody_is_asked() -> None:
    async with asking(policy="never") as at:
        at.listen(lambda event: pytest.fail("asked"))
        caller = AbortController()
        caller.abort()
        assert await at.ask(signal=caller.signal) == "cancelled"
        assert at.log() == ["bash", "cancelled"]


async def test_C67_never_rejects_whatever_the_priority_of_an_answerer() -> None:
    async with asking() as at:

        async def eager(event: ApprovalRequest, next_: Next[ApprovalOutcome]) -> ApprovalOutcome:
            return "allowed-once"

        at.bench.ctx.on(ApprovalRequest, eager, prepend=True)
        at.agent.session.append(ApprovalPolicyEvent(policy="never"))
        assert await at.ask() == "rejected"
        at.agent.session.append(ApprovalPolicyEvent(policy="ask"))
        assert await at.ask() == "allowed-once"
        assert at.log() == ["bash", "rejected", "bash", "allowed-once"]


async def test_C67_the_configured_policy_holds_until_the_session_has_one() -> None:
    async with asking(policy="never") as at:
        at.listen(lambda event: "allowed-once")
        assert await at.ask() == "rejected"
        at.agent.session.append(ApprovalPolicyEvent(policy="ask"))
        assert await at.ask() == "allowed-once"


async def test_C67_nobody_there_is_unavailable() -> None:
    async with asking() as at:
        assert await at.ask() == "unavailable"


async def test_C67_only_answerers_of_the_agents_scope_are_asked() -> None:
    async with asking() as at:
        other = at.bench.agent()

        async def yes(event: ApprovalRequest, next_: Next[ApprovalOutcome]) -> ApprovalOutcome:
            return "allowed-once"

        other.ctx.on(ApprovalRequest, yes)
        assert await at.ask() == "unavailable"
        at.agent.ctx.on(ApprovalRequest, yes)
        assert await at.ask() == "allowed-once"


async def test_C67_answerers_may_pass_the_question_on() -> None:
    async with asking() as at:

        async def passes(event: ApprovalRequest, next_: Next[ApprovalOutcome]) -> ApprovalOutcome:
            return await next_()

        at.bench.ctx.on(ApprovalRequest, passes)
        at.listen(lambda event: "rejected")
        assert await at.ask() == "rejected"


@pytest.mark.parametrize("answer", [None, True, "yes", "allowed-always", ["allowed-once"]])
async def test_C68_an_unknown_answer_is_unavailable(answer: object) -> None:
    async with asking() as at:
        at.listen(lambda event: answer)
        assert await at.ask() == "unavailable"
        assert at.log() == ["bash", "unavailable"]


async def test_C68_a_raising_answerer_is_unavailable() -> None:
    async with asking() as at:

        def broken(event: ApprovalRequest) -> object:
            raise RuntimeError("no terminal")

        at.listen(broken)
        assert await at.ask() == "unavailable"
        assert at.log() == ["bash", "unavailable"]


async def test_C68_an_abort_while_waiting_cancels_and_the_late_answer_is_dropped() -> None:
    async with asking() as at:
        caller = AbortController()
        release = anyio.Event()
        ended: list[object] = []

        async def slow(event: ApprovalRequest, next_: Next[ApprovalOutcome]) -> ApprovalOutcome:
            caller.abort("user")
            # The answerer is told, and not cancelled.
            await event.signal.wait()
            await release.wait()
            ended.append("answered")
            return "allowed-once"

        at.bench.ctx.on(ApprovalRequest, slow)
        assert await at.ask(signal=caller.signal) == "cancelled"
        assert at.log() == ["bash", "cancelled"]
        length = len(at.agent.session.events)
        release.set()
        await anyio.wait_all_tasks_blocked()
        assert ended == ["answered"]
        assert len(at.agent.session.events) == length


async def test_C126_an_abort_in_the_tick_of_the_answer_leaves_one_decision() -> None:
    for first in ("answer", "abort"):
        async with asking() as at:
            caller = AbortController()

            async def both(
                event: ApprovalRequest,
                next_: Next[ApprovalOutcome],
                first: str = first,
                caller: AbortController = caller,
                at: Asking = at,
            ) -> ApprovalOutcome:
                if first == "answer":
                    at.service.answer(event.id, "allowed-once")
                caller.abort()
                return "allowed-once"

            at.bench.ctx.on(ApprovalRequest, both)
            expected = "allowed-once" if first == "answer" else "cancelled"
            assert await at.ask(signal=caller.signal) == expected
            assert at.log() == ["bash", expected]


async def test_T131_an_abandoned_call_is_not_waited_for() -> None:
    async with asking() as at:
        caller = AbortController()

        async def slow(event: ApprovalRequest, next_: Next[ApprovalOutcome]) -> ApprovalOutcome:
            caller.abandon()
            await anyio.sleep_forever()
            return "allowed-once"

        at.bench.ctx.on(ApprovalRequest, slow)
        assert await at.ask(signal=caller.signal) == "cancelled"


async def test_C66_native_cancellation_leaves_a_decision_and_no_task() -> None:
    async with asking() as at:
        began = anyio.Event()
        ended = anyio.Event()

        async def slow(event: ApprovalRequest, next_: Next[ApprovalOutcome]) -> ApprovalOutcome:
            began.set()
            try:
                await anyio.sleep_forever()
            finally:
                ended.set()
            return "allowed-once"

        at.bench.ctx.on(ApprovalRequest, slow)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(at.ask)
            await began.wait()
            tasks.cancel_scope.cancel()
        assert at.log() == ["bash", "cancelled"]
        await ended.wait()
        assert at.service.pending() == ()


async def test_C69_once_is_literal() -> None:
    async with asking() as at:
        answers = iter(["allowed-once", "rejected"])
        at.listen(lambda event: next(answers))
        assert [await at.ask(), await at.ask()] == ["allowed-once", "rejected"]


async def test_a_program_answers_by_id_while_it_attends() -> None:
    async with asking() as at:
        attendant = at.service.attend()
        outcomes: list[ApprovalOutcome] = []

        async def ask() -> None:
            outcomes.append(await at.ask(reason="why"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            [request] = at.service.pending(at.agent)
            assert request.reason == "why"
            assert at.service.pending(at.bench.agent()) == ()
            assert at.service.answer(request.id, "allowed-once")
            assert not at.service.answer(request.id, "rejected")
        assert outcomes == ["allowed-once"]
        assert not at.service.answer(request.id, "rejected")
        attendant()
        assert await at.ask() == "unavailable"


async def test_questions_are_unavailable_when_the_last_attendant_leaves() -> None:
    async with asking() as at:
        first, second = at.service.attend(), at.service.attend()
        outcomes: list[ApprovalOutcome] = []

        async def ask() -> None:
            outcomes.append(await at.ask())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            first()
            await anyio.wait_all_tasks_blocked()
            assert outcomes == []
            second()
        assert outcomes == ["unavailable"]


async def test_a_listener_of_the_log_may_answer_at_once() -> None:
    async with asking() as at:
        at.service.attend()
        session = at.agent.session
        at.bench.ctx.sessions.enter(session)

        def heard(event: SessionEventAppended) -> None:
            if isinstance(event.event.data, ApprovalAsked):
                at.service.answer(event.event.data.id, "rejected")

        at.bench.ctx.on(SessionEventAppended, heard, everywhere=True)
        assert await at.ask() == "rejected"
        assert at.log() == ["bash", "rejected"]


async def test_an_unknown_outcome_is_refused() -> None:
    async with asking() as at:
        with pytest.raises(ApprovalError) as caught:
            at.service.answer("x", cast("ApprovalOutcome", "sure"))
        assert caught.value.code == "APPROVAL_UNKNOWN_ANSWER"


async def test_A73_the_wait_of_an_answerer_is_in_the_census() -> None:
    async with asking() as at:
        caller = AbortController()

        async def deaf(event: ApprovalRequest, next_: Next[ApprovalOutcome]) -> ApprovalOutcome:
            caller.abort()
            await anyio.sleep_forever()
            return "allowed-once"

        at.bench.ctx.on(ApprovalRequest, deaf)
        census = RecordingCensus()
        with census.installed():
            assert await at.ask(signal=caller.signal, call_id=CallId("c1")) == "cancelled"
        [entry] = census.running
        assert (entry.kind, entry.label, entry.call_id) == (
            "listener",
            "approval/request bash",
            "c1",
        )
        assert entry.cancel is not None
        entry.cancel()
        await anyio.wait_all_tasks_blocked()
        assert census.running == []


async def test_C113_unloading_settles_what_is_open() -> None:
    async with asking() as at:
        at.service.attend()
        outcomes: list[ApprovalOutcome] = []

        async def ask() -> None:
            outcomes.append(await at.ask())

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await anyio.wait_all_tasks_blocked()
            await at.bench.ctx.unplug(dsh_approval)
        assert outcomes == ["unavailable"]
        assert at.log() == ["bash", "unavailable"]


async def test_C66_many_questions_in_any_order_have_one_decision_each() -> None:
    async with asking() as at:
        at.service.attend()
        agents: list[Agent] = [at.agent]
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(at.ask)
            await anyio.wait_all_tasks_blocked()
            for number, request in enumerate(reversed(at.service.pending(agents[0]))):
                at.service.answer(request.id, "rejected" if number % 2 else "allowed-once")
        assert at.log().count("allowed-once") == 10
        assert at.log().count("rejected") == 10
