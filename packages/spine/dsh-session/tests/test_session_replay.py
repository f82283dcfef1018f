"""Recorded logs played again: the same requests pass, another one is named."""

from collections.abc import Callable

import anyio
import msgspec
import pytest

from dsh_agent_loop.testing import ScriptedModel, call, fail, say
from dsh_cordis import Context
from dsh_llm import (
    AbortController,
    AssistantStreamAccumulator,
    BlockStart,
    GenerateOptions,
    LlmAdapter,
    LlmCallConfig,
    LlmError,
    TextDelta,
    ToolSchema,
    create_user_message,
)
from dsh_session import (
    AssistantAttempt,
    AssistantMessageEvent,
    RequestHeader,
    RequestHeaderEvent,
    Session,
    SessionEvent,
    StepStart,
    TurnEnd,
    TurnStart,
    decode_event,
    encode_event,
)
from dsh_session.testing import (
    WORKED_EXAMPLE,
    ReplayMismatchError,
    new_session,
    replay_model,
)
from dsh_spine import spine
from dsh_tools import ToolDefinition, ToolOutput


def echo(answer: Callable[[], str]) -> ToolDefinition:
    async def execute(args: object, exec: object) -> str:  # noqa: A002  # the name of the seam
        return answer()

    return ToolDefinition(
        name="echo",
        description="Gives something back.",
        parameters={"type": "object", "properties": {}},
        output=ToolOutput(schema={"type": "string"}, render=lambda args, value: str(value)),
        execute=execute,
    )


async def run(
    model: LlmAdapter,
    inputs: list[str],
    *,
    answer: Callable[[], str] = lambda: "hello",
    persona: str = "You are brief.",
    providers: tuple[str, ...] = ("test",),
) -> list[SessionEvent]:
    """Run an agent over some inputs and give its log."""
    async with Context() as ctx:
        prompt = {"persona": persona, "include_harness_identity": False}
        _ = ctx.plugin(spine, {"system_prompt": prompt})
        await ctx.settled()
        ctx.llm.register_adapter(providers, model)
        ctx.tools.register(echo(answer))
        handle = await ctx.agents.create(provider="test", model="m", max_tokens=100)
        for text in inputs:
            handle.agent.followup(text)
            with anyio.fail_after(5):
                await handle.agent.when_idle()
        return list(handle.agent.session.events)


def recorded() -> ScriptedModel:
    return ScriptedModel(
        call(("c1", "echo", '{"a": 1}')), say("It says hello."), say("Bye."), context_window=1000
    )


INPUTS = ["What does it say?", "Goodbye."]


def stored(events: list[SessionEvent]) -> list[SessionEvent]:
    """The events as a store gives them back."""
    return [decode_event(encode_event(event)) for event in events]


def shape(events: list[SessionEvent]) -> list[object]:
    return [(event.type, event.surface_op) for event in events]


async def test_a_recorded_run_passes_again_without_its_model() -> None:
    log = await run(recorded(), INPUTS)
    model = replay_model(stored(log))
    assert (model.providers, len(model.attempts)) == (["test"], 3)
    again = await run(model, INPUTS)
    model.check()
    assert shape(again) == shape(log)
    answers = [e.data.message.content for e in log if isinstance(e.data, AssistantMessageEvent)]
    assert [
        e.data.message.content for e in again if isinstance(e.data, AssistantMessageEvent)
    ] == answers


async def test_another_output_of_a_tool_is_named() -> None:
    model = replay_model(await run(recorded(), INPUTS))
    log = await run(model, INPUTS[:1], answer=lambda: "hullo")
    with pytest.raises(ReplayMismatchError) as caught:
        model.check()
    words = "messages[3].content[0].text: recorded 'hello', now 'hullo'"
    assert words in str(caught.value)
    assert "request 2 (turn 1, step 2, seq " in str(caught.value)
    ends = [event.data for event in log if isinstance(event.data, TurnEnd)]
    assert "hullo" in str(ends[-1].reason)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"persona": "You are verbose."}, "text: recorded 'You are brief.', now 'You are verbose"),
        ({"inputs": ["Well?"]}, "recorded 'What does it say?', now 'Well?'"),
    ],
)
async def test_another_prompt_or_input_is_named(changes: dict[str, object], words: str) -> None:
    model = replay_model(await run(recorded(), INPUTS))
    arguments = {"inputs": INPUTS, **changes}
    await run(model, **arguments)  # type: ignore[arg-type]  # the parameters above
    with pytest.raises(ReplayMismatchError) as caught:
        model.check()
    assert words in str(caught.value)


async def test_an_attempt_that_nobody_asks_for_is_named() -> None:
    model = replay_model(await run(recorded(), INPUTS))
    await run(model, INPUTS[:1])
    with pytest.raises(ReplayMismatchError, match="3 attempts, only 2 were asked for"):
        model.check()


async def test_a_request_too_many_is_named() -> None:
    model = replay_model(await run(recorded(), INPUTS[:1]))
    await run(model, INPUTS)
    with pytest.raises(ReplayMismatchError, match="2 attempts, and one more is asked for"):
        model.check()


async def test_a_failed_attempt_fails_again() -> None:
    log = await run(ScriptedModel(fail("too busy"), say("Here.")), INPUTS)
    model = replay_model(log)
    again = await run(model, INPUTS)
    model.check()
    assert shape(again) == shape(log)


def interrupted() -> Session:
    """A log of one attempt that was aborted after its first words."""
    session = new_session()
    session.append(TurnStart(turn=1))
    session.append(StepStart(turn=1, step=1))
    header = RequestHeader(config=LlmCallConfig(provider="p", model="m"))
    session.append(RequestHeaderEvent(header=header, reason="initial"))
    stream = AssistantStreamAccumulator()
    stream.push(1, BlockStart(0, "text"))
    stream.push(2, TextDelta(0, "Well"))
    session.append(AssistantAttempt(turn=1, step=1, stream=stream.snapshot()))
    return session


async def test_a_stream_without_an_end_waits_for_its_abort() -> None:
    model = replay_model(interrupted())
    controller = AbortController()
    options = GenerateOptions(provider="p", model="m", messages=(), signal=controller.signal)
    stream = model.stream(options)
    chunks = [await anext(stream), await anext(stream)]
    controller.abort("enough")
    with anyio.fail_after(5), pytest.raises(LlmError, match="aborted"):
        await anext(stream)
    assert chunks == [BlockStart(0, "text"), TextDelta(0, "Well")]
    model.check()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "n"}, "config.model: recorded 'm', now 'n'"),
        ({"max_tokens": 5}, "config.maxTokens: recorded absent, now 5"),
        (
            {"tools": (ToolSchema(name="t", description="", parameters={}),)},
            "tools[0]: recorded abs",
        ),
        ({"messages": (create_user_message("hi"),)}, "messages[0]: recorded absent, now {"),
        ({"purpose": "compaction"}, "a log holds no answers to calls for 'compaction'"),
        ({}, "was aborted, and this request has no signal"),
    ],
)
async def test_each_part_of_a_request_counts(changes: dict[str, object], words: str) -> None:
    model = replay_model(interrupted())
    options = GenerateOptions(provider="p", model="m", messages=())
    with pytest.raises(ReplayMismatchError) as caught:
        async for _ in model.stream(msgspec.structs.replace(options, **changes)):
            pass
    assert words in str(caught.value)
    assert model.mismatches == [caught.value]


async def test_what_the_log_says_of_a_model_is_what_it_resolves_to() -> None:
    model = replay_model(await run(recorded(), INPUTS))
    found = await model.resolve_model("test", "m")
    assert found.context is not None
    assert (found.context.context_window, found.default_max_tokens) == (1000, None)
    assert [item.id for item in await model.list_models("test")] == ["m"]


def test_S11_the_attempts_of_the_worked_example_are_those_of_its_log() -> None:
    events = [decode_event(line) for line in WORKED_EXAMPLE.splitlines()[1:]]
    attempts = replay_model(events).attempts
    assert [(a.seq, a.turn, a.step, len(a.chunks)) for a in attempts] == [
        (5, 1, 1, 9),
        (10, 1, 2, 1),
    ]
    assert [len(attempt.messages) for attempt in attempts] == [1, 3]


async def test_what_changes_from_run_to_run_can_be_left_out() -> None:
    log = await run(recorded(), INPUTS)
    model = replay_model(log, compare=lambda message: message.role)
    await run(model, INPUTS, answer=lambda: "something else")
    model.check()


def test_a_damaged_stream_is_refused_with_its_seq() -> None:
    text = WORKED_EXAMPLE.replace(b'"dt":[5,0,-2]', b'"dt":[5]')
    events = [decode_event(line) for line in text.splitlines()[1:]]
    with pytest.raises(ValueError, match="stream of seq 5"):
        replay_model(events)
