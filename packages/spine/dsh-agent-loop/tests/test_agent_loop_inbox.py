"""The inbox, the model selection and the folds behind them, in a running loop."""

import anyio
import pytest

import dsh_agent_loop
from dsh_agent import (
    InboxClaimed,
    InboxDiscarded,
    InboxInserted,
    ModelSelection,
    PreStep,
    PreStepDecision,
    install_model_selection,
)
from dsh_agent_loop.testing import LoopStack, loop_stack, say
from dsh_brand import to_json
from dsh_cordis import Next
from dsh_llm import Message, create_user_message, message_text
from dsh_session import (
    InboxSpliced,
    ModelSelectionEvent,
    SessionEventAppended,
    SessionId,
    TurnStart,
)


def splices(stack: LoopStack) -> list[InboxSpliced]:
    return [e.data for e in stack.agent.session.events if isinstance(e.data, InboxSpliced)]


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message_text(message) for message in messages]


async def test_A18_a_message_is_known_by_its_id_only() -> None:
    async with loop_stack(say("hi")) as stack:
        seen: list[tuple[str, str]] = []
        for kind in (InboxInserted, InboxClaimed, InboxDiscarded):
            stack.ctx.on(kind, lambda e: seen.append((e.name, e.message.id)), everywhere=True)
        first, second = create_user_message("M"), create_user_message("N")
        agent = stack.agent
        given = [agent.followup(first), agent.steer(second), agent.inject("x"), agent.cancel()]  # type: ignore[func-returns-value]  # that is the point
        assert given == [None] * 4
        assert seen[:3] == [
            ("agent/inbox/inserted", first.id),
            ("agent/inbox/claimed", first.id),
            ("agent/inbox/inserted", second.id),
        ]
        assert ("agent/inbox/discarded", second.id) in seen
        with anyio.fail_after(5):
            await agent.when_idle()


async def test_A22_the_durable_form_of_a_splice() -> None:
    async with loop_stack(say("hi")) as stack:
        one, two = create_user_message("one"), create_user_message("two")
        inbox = stack.agent.inbox
        inbox.append("next-turn", one)
        assert inbox.replace(one.id, two)
        assert inbox.remove(two.id)
        stack.agent.followup("M")
        rows = [to_json(splice) for splice in splices(stack)]
        shapes = [
            {**row, "inserted": len(row["inserted"])} for row in rows if isinstance(row, dict)
        ]
        assert shapes == [
            {"target": "next-turn", "start": 0, "inserted": 1},
            {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": 1}
            | {"outcome": "canceled"},
            {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": 0}
            | {"outcome": "canceled"},
            {"target": "next-turn", "start": 0, "inserted": 1},
            {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": 0},
        ]
        with anyio.fail_after(5):
            await stack.agent.when_idle()


async def test_A23_the_fold_is_in_force_inside_the_notification_and_both_tellings_follow() -> None:
    async with loop_stack() as stack:
        old, new = create_user_message("old"), create_user_message("new")
        inbox = stack.agent.inbox
        inbox.append("next-turn", old)
        stack.recorder.take()
        seen: list[list[str]] = []

        def look(event: SessionEventAppended) -> None:
            seen.append(texts(stack.agent.inbox.next_turn))

        stack.ctx.on(SessionEventAppended, look, everywhere=True)
        inbox.replace(old.id, new)
        assert seen == [["new"]]
        assert stack.recorder.take() == [
            "agent/inbox/spliced next-turn@0 -1 +new canceled",
            "~discarded old",
            "~inserted new",
        ]
        with pytest.raises(Exception, match="pending already"):
            inbox.append("next-step", new)
        assert (texts(inbox.next_turn), inbox.next_step) == (["new"], ())
        assert stack.recorder.take() == []


async def test_A24_clearing_empties_next_step_first_and_empty_lists_write_nothing() -> None:
    async with loop_stack() as stack:
        stack.agent.inbox.clear()
        assert stack.recorder.take() == []
        stack.agent.inject("S")
        stack.agent.inbox.append("next-turn", create_user_message("T"))
        stack.recorder.take()
        stack.agent.inbox.clear()
        assert [line for line in stack.recorder.take() if not line.startswith("~")] == [
            "agent/inbox/spliced next-step@0 -1 canceled",
            "agent/inbox/spliced next-turn@0 -1 canceled",
        ]


async def test_A25_a_claim_takes_all_of_next_step_and_one_turn() -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        inbox = stack.agent.inbox
        for text in ("T1", "T2"):
            inbox.append("next-turn", create_user_message(text))
        for text in ("S1", "S2"):
            stack.agent.inject(text)
        stack.recorder.take()
        lines = await stack.run("T3")
        at = lines.index("turn/start 1")
        assert lines[at + 1 : at + 6] == [
            "agent/inbox/spliced next-step@0 -2",
            "agent/inbox/spliced next-turn@0 -1",
            "~claimed S1 turn 1",
            "~claimed S2 turn 1",
            "~claimed T1 turn 1",
        ]
        assert "~pre-step [S1 S2 T1] 1.1" in lines
        assert [line for line in lines if line.startswith("~claimed T")] == [
            "~claimed T1 turn 1",
            "~claimed T2 turn 2",
            "~claimed T3 turn 3",
        ]


async def test_A79_what_comes_behind_the_claim_waits_for_the_next_boundary() -> None:
    async with loop_stack(say("a"), say("b")) as stack:

        def insert(event: InboxClaimed) -> None:
            if event.turn == 1 and message_text(event.message) == "M":
                stack.agent.inject("I")

        stack.ctx.on(InboxClaimed, insert, everywhere=True)
        lines = await stack.run("M")
        steps = [line for line in lines if line.startswith("~pre-step")]
        assert steps == ["~pre-step [M] 1.1", "~pre-step [I] 1.2"]


async def test_A29_the_loop_owns_the_folds_and_readers_need_no_agent() -> None:
    async with loop_stack(say("hi")) as stack:
        stack.agent.inject("S")
        session, registry = stack.agent.session, stack.ctx.session_projections
        keys = ("inbox", "modelSelection", "turnBoundary")
        live = [registry.state_of(session, key) for key in keys]
        cold = stack.ctx.sessions.prepare(SessionId("cold"), seed=list(session.events))
        assert [registry.state_of(cold, key) for key in keys] == live
        assert texts(stack.agent.inbox.next_step) == ["S"]
        await stack.ctx.unplug(dsh_agent_loop)
        assert [registry.state_of(cold, key) for key in keys] == [None] * 3


async def test_A31_A33_the_model_in_use_and_what_a_choice_records() -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        model, session = stack.agent.model, stack.agent.session
        options = ModelSelection(provider="test", model="m")
        other = ModelSelection(provider="test", model="other", reasoning_effort="high")

        def recorded() -> int:
            return sum(isinstance(e.data, ModelSelectionEvent) for e in session.events)

        assert model.current() == options
        assert (session.seq, recorded()) == (0, 0)  # reading pins nothing
        model.select(options)
        assert recorded() == 1  # equal to the options only
        model.select(options)
        assert recorded() == 1
        model.select(other)
        assert (model.current(), recorded()) == (other, 2)
        model.select(options)
        await stack.run("M")
        assert model.current() == options
        model.select(options)
        assert recorded() == 3  # equal to the last header: nothing
        bare = await stack.ctx.agents.create()
        assert bare.agent.model.current() is None


async def test_A33_a_choice_may_be_made_inside_a_turn() -> None:
    async with loop_stack() as stack:
        chosen = ModelSelection(provider="test", model="next")

        async def choose(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            event.agent.model.select(chosen)
            return await next_()

        stack.ctx.on(PreStep, choose, everywhere=True)
        lines = await stack.run("M")
        assert lines.index("model/selection") < lines.index("step/start 1.1")
        assert stack.model.requests[0].model == "m"
        await stack.run("N")
        assert stack.model.requests[1].model == "next"


async def test_A39_the_notice_goes_with_the_scope_it_was_set_up_in() -> None:
    async with loop_stack(say("a"), say("b"), say("c")) as stack:
        order: list[str] = []

        async def inner(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            order.append("other listener")
            return await next_()

        stack.ctx.on(PreStep, inner, everywhere=True, prepend=True)
        handle = install_model_selection(stack.agent.ctx, stack.agent)
        await stack.run("M")
        stack.agent.model.select(ModelSelection(provider="test", model="n"))
        assert "user/message [model changed" in "\n".join(await stack.run("N"))
        handle()
        stack.agent.model.select(ModelSelection(provider="test", model="o"))
        assert "model changed" not in "\n".join(await stack.run("O"))
        assert order == ["other listener"] * 3


async def test_A48_appends_to_one_session_do_not_nest() -> None:
    async with loop_stack(say("hi"), say("more")) as stack:
        codes: list[str] = []
        agent = stack.agent
        pending = create_user_message("pending")
        agent.inbox.append("next-turn", pending)

        def nest(event: SessionEventAppended) -> None:
            if not isinstance(event.event.data, TurnStart):
                return
            chosen = ModelSelection(provider="p", model="q")
            for deed in (
                lambda: agent.followup("F"),
                lambda: agent.model.select(chosen),
                lambda: agent.inbox.remove(pending.id),
                agent.cancel,
            ):
                try:
                    deed()
                except Exception as error:  # noqa: BLE001  # its code is what is asked for
                    codes.append(getattr(error, "code", repr(error)))

        stack.ctx.on(SessionEventAppended, nest, everywhere=True)
        stack.ctx.on(
            InboxClaimed,
            lambda e: agent.inject("allowed") if e.turn == 1 else None,
            everywhere=True,
        )
        lines = await stack.run("M")
        assert codes == ["SESSION_REENTRY"] * 4
        assert "~inserted allowed" in lines


async def test_A67_numbers_go_on_behind_the_log_and_steps_begin_anew() -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        await stack.run("M")
        events = list(stack.agent.session.events)
        await stack.handle.dispose()
        handle = await stack.ctx.agents.create(
            session_id=SessionId("again"), seed=events, provider="test", model="m"
        )
        stack.handle = handle
        stack.recorder.take()
        lines = await stack.run("N")
        assert [line for line in lines if line.startswith(("turn/", "step/"))] == [
            "turn/start 2",
            "step/start 2.1",
            "step/end 2.1",
            "turn/end 2 completed",
        ]
