"""One question, one answer; the events of a turn; budgets that ask."""

from collections.abc import Callable

import anyio
import pytest

from dsh_agent import StreamChunkFrame
from dsh_agent_loop.testing import ScriptedModel, Step, call, fail, say
from dsh_cordis import Context
from dsh_llm import LlmService, TokenUsage, UsageChunk, message_text
from dsh_session import Blocked, Completed, SessionEvent, TurnEnd
from dsh_spine import (
    BudgetConfigError,
    BudgetExceeded,
    Extend,
    RunError,
    TurnEvents,
    ask,
    budget,
    run,
    run_async,
    spine,
)


class ModelContext(Context):
    llm: LlmService


def scripted(*replies: list[Step]) -> Callable[[ModelContext], None]:
    def model(ctx: ModelContext) -> None:
        ctx.llm.register_adapter(["test"], ScriptedModel(*replies))

    return model


def priced(text: str, tokens: int) -> list[Step]:
    *blocks, finish = say(text)
    return [*blocks, UsageChunk(TokenUsage(input_tokens=tokens, output_tokens=1)), finish]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_run_returns_text_usage_and_session(backend: str) -> None:
    result = run(
        "Hi",
        provider="test",
        model="m",
        plugins=[scripted(priced("Hello!", 5))],
        session_id="mine",
        backend=backend,
    )
    assert (result.text, result.session_id, result.ending) == ("Hello!", "mine", Completed())
    assert result.usage == TokenUsage(input_tokens=5, output_tokens=1)


def test_run_raises_what_ended_the_turn() -> None:
    with pytest.raises(RunError, match="overloaded") as caught:
        run("Hi", provider="test", model="m", plugins=[scripted(fail())])
    assert caught.value.code == "SERVER"
    assert caught.value.session_id is not None


async def test_run_inside_a_loop_names_the_form_to_await() -> None:
    with pytest.raises(RunError, match="await run_async"):
        run("Hi", provider="test", model="m")
    result = await run_async("Hi", provider="test", model="m", plugins=[scripted(say("yes"))])
    assert result.text == "yes"


async def test_the_events_of_a_turn_end_with_its_end() -> None:
    async with Context() as ctx:
        _ = ctx.plugin(spine)
        _ = ctx.plugin(scripted(say("one"), say("two")))
        await ctx.settled()
        agent = (await ctx.agents.create(provider="test", model="m")).agent
        await ask(agent, "first")
        seen: list[str] = []
        with anyio.fail_after(5):
            async with TurnEvents(agent, "second") as events:
                async for event in events:
                    name = event.type if isinstance(event, SessionEvent) else type(event).__name__
                    seen.append(name)
        assert seen[:2] == ["step/start", "user/message"]
        assert seen.count(StreamChunkFrame.__name__) == 4
        assert seen.index("assistant/message") < seen.index("StreamEnd") < seen.index("step/end")
        assert seen[-1] == "turn/end"


async def test_a_discarded_message_ends_its_events() -> None:
    async with Context() as ctx:
        _ = ctx.plugin(spine)
        _ = ctx.plugin(scripted([anyio.sleep_forever]))
        await ctx.settled()
        agent = (await ctx.agents.create(provider="test", model="m")).agent
        agent.followup("first")
        with anyio.fail_after(5):
            async with TurnEvents(agent, "second") as events:
                agent.cancel()
                assert [event async for event in events] == []
            await agent.when_idle()


async def test_a_spent_budget_pauses_and_loses_nothing() -> None:
    async with Context() as ctx:
        _ = ctx.plugin(spine)
        _ = ctx.plugin(budget, {"max_steps": 1})
        _ = ctx.plugin(scripted(call(("c1", "nope", "")), say("done")))
        await ctx.settled()
        agent = (await ctx.agents.create(provider="test", model="m")).agent
        questions: list[tuple[str, float, float]] = []

        async def listen(event: BudgetExceeded) -> None:
            questions.append((event.limit, event.spent, event.allowed))
            event.agent.inject("meanwhile")

        ctx.on(BudgetExceeded, listen, everywhere=True)
        result = await ask(agent, "work")
        assert result.ending == Blocked()
        assert questions == [("steps", 1, 1)]
        assert [message_text(m) for m in agent.inbox.next_step] == ["meanwhile"]
        result = await ask(agent, "go on")
        assert (result.text, result.ending) == ("done", Completed())


async def test_an_extended_budget_goes_on() -> None:
    async with Context() as ctx:
        _ = ctx.plugin(spine)
        _ = ctx.plugin(budget, {"max_money": 0.001, "price_per_million_input": 100})
        first = [
            *call(("c1", "nope", "")),
            UsageChunk(TokenUsage(input_tokens=50, output_tokens=1)),
        ]
        _ = ctx.plugin(scripted([*first[:-2], first[-1], first[-2]], say("b")))
        await ctx.settled()
        agent = (await ctx.agents.create(provider="test", model="m")).agent

        asked: list[tuple[str, float]] = []

        async def allow(event: BudgetExceeded) -> Extend | None:
            asked.append((event.limit, event.spent))
            return Extend()

        ctx.on(BudgetExceeded, allow, everywhere=True)
        await ask(agent, "one")
        reasons = [e.data.reason for e in agent.session.events if isinstance(e.data, TurnEnd)]
        assert reasons == [Completed()]
        assert asked == [("money", 0.005)]


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"max_stepps": 1}, "max_stepps.*its keys are max_steps, max_tokens"),
        ({"max_steps": 0}, "max_steps is 0; give more than 0"),
        ({"max_seconds": -1}, "max_seconds is -1"),
        ({"max_steps": True}, "got `bool`"),
        ({"max_money": 1.0}, "max_money counts nothing without prices"),
        ({"per": "day"}, "day"),
    ],
)
async def test_a_wrong_budget_is_refused(config: dict[str, object], told: str) -> None:
    async with Context() as ctx:
        with pytest.raises(BudgetConfigError, match=told):
            await ctx.plugin(budget, config)


async def test_what_run_cannot_do_is_said() -> None:
    model = scripted(say("hi"))
    with pytest.raises(RunError, match="give session_id") as unnamed:
        await run_async("Hi", provider="test", model="m", plugins=[model], resume=True)
    assert unnamed.value.code == "NO_SESSION"

    class Needs(Context):
        weather: LlmService

    def forecast(ctx: Needs) -> None:
        """Waits for ever."""

    with pytest.raises(RunError, match="'forecast' waits for 'weather'") as waiting:
        await run_async("Hi", provider="test", model="m", plugins=[model, forecast])
    assert waiting.value.code == "PLUGIN_WAITING"
    with pytest.raises(TypeError, match=r"write plugins=\[\.\.\.\]"):
        await run_async("Hi", provider="test", model="m", plugins=model)  # type: ignore[arg-type]  # the mistake
    with pytest.raises(TypeError, match="a message is a text or a Message"):
        await run_async(b"Hi", provider="test", model="m", plugins=[model])  # type: ignore[arg-type]  # the mistake


async def test_turn_events_are_watched_once_and_inside_their_block() -> None:
    async with Context() as ctx:
        _ = ctx.plugin(spine)
        _ = ctx.plugin(scripted(say("one"), say("two")))
        await ctx.settled()
        agent = (await ctx.agents.create(provider="test", model="m")).agent
        events = TurnEvents(agent, "first")
        with pytest.raises(RuntimeError, match="async with"):
            await anext(events)
        async with events:
            pass
        with pytest.raises(RuntimeError, match="a TurnEvents per message"):
            async with events:
                pass
        with anyio.fail_after(5):
            await agent.when_idle()


async def test_a_cancelled_wait_leaves_the_turn_alone() -> None:
    async with Context() as ctx:
        release = anyio.Event()
        _ = ctx.plugin(spine)
        _ = ctx.plugin(scripted([release.wait, *say("late")]))
        await ctx.settled()
        agent = (await ctx.agents.create(provider="test", model="m")).agent
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask, agent, "first")
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        assert agent.status == "running"
        release.set()
        with anyio.fail_after(5):
            await agent.when_idle()
        reasons = [e.data.reason for e in agent.session.events if isinstance(e.data, TurnEnd)]
        assert reasons == [Completed()]
