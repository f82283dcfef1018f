"""The companion refuses what breaks the order of turns, steps and calls, before it is in the log."""

from collections.abc import AsyncIterator, Callable

import pytest

from dsh_agent_loop.testing import ScriptedModel, call, say
from dsh_cordis import Context
from dsh_llm import LlmCallConfig
from dsh_session import (
    AssistantAttempt,
    AssistantMessageEvent,
    Completed,
    InvalidLogError,
    ReplaceOp,
    RequestContext,
    RequestHeader,
    RequestHeaderEvent,
    Session,
    SessionEventData,
    SessionStore,
    StepEnd,
    StepStart,
    SystemMessageEvent,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
    interrupted_turn_closers,
    invariant,
)
from dsh_session.testing import (
    append_turn,
    assistant_message,
    system_message,
    tool_message,
    user_message,
)
from dsh_spine import spine

CONFIG = LlmCallConfig(provider="p", model="m")
HEADER = RequestHeaderEvent(header=RequestHeader(config=CONFIG), reason="initial")
ANSWER = AssistantMessageEvent(turn=1, step=1, message=assistant_message(calls=["c"]), stream=())
CALL = ToolCallEvent(turn=1, step=1, call_id="c", name="echo", arguments="{}")  # type: ignore[arg-type]  # a plain id
RESULT = ToolResultEvent(turn=1, step=1, message=tool_message("c"))
TURN, STEP = TurnStart(turn=1), StepStart(turn=1, step=1)
STEP_END, TURN_END = StepEnd(turn=1, step=1), TurnEnd(turn=1, reason=Completed())


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    async with Context() as root:
        yield root


def put(session: Session, *data: SessionEventData) -> None:
    for item in data:
        session.append(item, surface_op="append" if item.surface else None)


@pytest.mark.parametrize(
    ("before", "refused", "words"),
    [
        ([], TurnStart(turn=2), "turn 2 cannot start after turn 0; no turn is open"),
        ([TURN], TurnStart(turn=2), "turn 1 is open"),
        ([], TURN_END, "cannot end"),
        ([TURN, STEP], TURN_END, "turn 1 is open with step 1"),
        ([], STEP, "no turn is open"),
        ([TURN], StepStart(turn=1, step=2), "step 1/2 cannot start"),
        ([TURN, STEP], StepStart(turn=1, step=2), "step 1/2 cannot start"),
        ([TURN], STEP_END, "names step 1/1"),
        ([TURN, STEP], StepEnd(turn=1, step=2), "names step 1/2"),
        ([], HEADER, "outside a turn"),
        ([], RequestContext(provider="p", model="m"), "outside a turn"),
        ([TURN], AssistantAttempt(turn=1, step=1, stream=()), "names step 1/1"),
        ([TURN], ANSWER, "names step 1/1"),
        ([TURN], SystemMessageEvent(turn=1, step=1, message=system_message()), "names step"),
        ([TURN, STEP, ANSWER, CALL, RESULT, STEP_END], CALL, "names step 1/1"),
        ([TURN, STEP], RESULT, "'c', which is not open in this step"),
        ([TURN, STEP, ANSWER], RESULT, "'c', which was not dispatched"),
        ([TURN, STEP, ANSWER, CALL, RESULT], RESULT, "is not open in this step"),
    ],
)
async def test_S99_what_breaks_a_core_relation_is_refused_before_it_is_logged(
    ctx: Context, before: list[SessionEventData], refused: SessionEventData, words: str
) -> None:
    await ctx.plugin(SessionStore)
    await ctx.plugin(invariant)
    session = ctx.sessions.create()
    put(session, *before)
    seen = list(session.events)
    with pytest.raises(InvalidLogError) as caught:
        put(session, refused)
    assert words in str(caught.value)
    assert list(session.events) == seen
    put(session, UserMessageEvent(message=user_message()))


async def test_S99_whole_turns_closers_and_repairs_pass(ctx: Context) -> None:
    await ctx.plugin(SessionStore)
    await ctx.plugin(invariant)
    session = ctx.sessions.create()
    append_turn(session, 1, calls=("x", "y"))
    put(session, TurnStart(turn=2), StepStart(turn=2, step=1))
    message = assistant_message(calls=["c"], id="b")
    put(session, AssistantMessageEvent(turn=2, step=1, message=message, stream=()))
    for event in interrupted_turn_closers(session.events):
        session.append(
            event.data,
            surface_op=event.surface_op,
            source_event_seqs=event.source_event_seqs,
        )
    append_turn(session, 3)


async def test_S99_a_result_is_rewritten_inside_a_turn_only(ctx: Context) -> None:
    await ctx.plugin(SessionStore)
    await ctx.plugin(invariant)
    session = ctx.sessions.create()
    append_turn(session, 1, calls=("c",))
    old = next(event for event in session.events if isinstance(event.data, ToolResultEvent))
    assert isinstance(old.data, ToolResultEvent)

    def rewrite() -> object:
        op = ReplaceOp(start_seq=old.seq, end_seq=old.seq)
        assert isinstance(old.data, ToolResultEvent)
        return session.append(old.data, surface_op=op, source_event_seqs=(old.seq,))

    with pytest.raises(InvalidLogError, match="outside a turn"):
        rewrite()
    put(session, TurnStart(turn=2))
    rewrite()


async def test_S99_history_that_breaks_the_rules_is_only_followed(ctx: Context) -> None:
    await ctx.plugin(SessionStore)
    session = ctx.sessions.create()
    put(session, TurnStart(turn=7), STEP_END)
    await ctx.plugin(invariant)
    put(session, TurnEnd(turn=7, reason=Completed()), TurnStart(turn=8))


async def test_S99_unmounted_it_refuses_nothing(ctx: Context) -> None:
    await ctx.plugin(SessionStore)
    session = ctx.sessions.create()
    async with ctx.plugin(invariant):
        with pytest.raises(InvalidLogError):
            put(session, TURN_END)
    put(session, TURN_END)


async def test_S32_a_guard_is_asked_last_and_what_it_raises_reaches_the_caller(
    ctx: Context,
) -> None:
    await ctx.plugin(SessionStore)
    session = ctx.sessions.create()
    asked: list[str] = []

    def guard(live: Session, event: object) -> None:
        asked.append(f"{live.id} {live.seq}")
        raise PermissionError("not today")

    handle = ctx.sessions.guard(guard)
    refuse: Callable[[], object] = lambda: session.append(TURN, surface_op="append")  # noqa: E731  # a broken append
    with pytest.raises(ValueError, match="log-only"):
        refuse()
    assert asked == []
    with pytest.raises(PermissionError):
        session.append(TURN)
    assert (asked, session.seq) == ([f"{session.id} 0"], 0)
    handle()
    session.append(TURN)


async def test_S99_the_loop_keeps_to_the_relations() -> None:
    async with Context() as ctx:
        _ = ctx.plugin(spine)
        _ = ctx.plugin(invariant)
        await ctx.settled()
        model = ScriptedModel(call(("c", "missing", "{}")), say("Done."), say("Bye."))
        ctx.llm.register_adapter(["test"], model)
        handle = await ctx.agents.create(provider="test", model="m")
        for text in ("one", "two"):
            handle.agent.followup(text)
            await handle.agent.when_idle()
        ends = [e.data for e in handle.agent.session.events if isinstance(e.data, TurnEnd)]
        assert [type(end.reason) for end in ends] == [Completed, Completed]
