"""The spine as one plugin, and its checkpoints."""

from collections.abc import Sequence

import anyio
import pytest

from dsh_agent import PreStep, PreStepDecision
from dsh_agent_loop.testing import ScriptedModel, Step, call, say
from dsh_cordis import Context, Next
from dsh_llm import message_text
from dsh_session import SessionFlush, SessionId
from dsh_session_persistence.testing.memory import MemoryLogStore, MemoryPersistence
from dsh_spine import PARTS, SpineConfigError, SpineContext, spine
from dsh_system_prompt import SystemPrompt


async def test_an_agent_answers_in_ten_lines() -> None:
    async with Context() as ctx:
        _ = ctx.plugin(spine)
        await ctx.settled()
        ctx.llm.register_adapter(["test"], ScriptedModel(say("A small workspace.")))
        handle = await ctx.agents.create(provider="test", model="m")
        handle.agent.followup("Summarize this workspace.")
        with anyio.fail_after(5):
            await handle.agent.when_idle()
        answer = handle.agent.session.derive_messages()[-1]
        assert (answer.role, message_text(answer)) == ("assistant", "A small workspace.")


async def test_every_part_has_its_service() -> None:
    async with Context() as ctx:
        _ = ctx.plugin(spine)
        await ctx.settled()
        keys = [key for key in PARTS if key != "checkpoint"]
        assert [type(ctx.get(key)).key for key in keys] == keys
        assert set(SpineContext.__annotations__) == set(keys)


async def test_parts_are_configured_by_their_keys() -> None:
    async with Context() as ctx:
        model = ScriptedModel()
        persona = {"persona": "You are brief.", "include_harness_identity": False}
        _ = ctx.plugin(spine, {"system_prompt": persona})
        await ctx.settled()
        ctx.llm.register_adapter(["test"], model)
        handle = await ctx.agents.create(provider="test", model="m")
        handle.agent.followup("Hi")
        with anyio.fail_after(5):
            await handle.agent.when_idle()
        assert message_text(model.requests[0].messages[0]) == "You are brief."


async def test_a_part_may_be_left_out_for_another_one() -> None:
    async with Context() as ctx:
        _ = ctx.plugin(spine, {"system_prompt": False})
        _ = ctx.plugin(SystemPrompt)
        await ctx.settled()
        assert ctx.get("agent_loop") is not None


async def test_an_unknown_part_is_refused_by_name() -> None:
    async with Context() as ctx:
        with pytest.raises(SpineConfigError, match="'tolls'"):
            await ctx.plugin(spine, {"tolls": {}})


async def test_unmounting_the_spine_leaves_no_service() -> None:
    async with Context() as ctx:
        async with ctx.plugin(spine) as fiber:
            await ctx.settled()
            await ctx.agents.create()
            assert fiber.uid is not None
        assert [key for key in PARTS if ctx.get(key) is not None] == []


class Flushes:
    """Notes flushes and other things in order, and fails when told to."""

    def __init__(self, ctx: Context) -> None:
        self.notes: list[str] = []
        self.broken = False
        ctx.on(SessionFlush, self._flush, everywhere=True)
        ctx.on(PreStep, self._step, everywhere=True)

    async def _flush(self, event: SessionFlush) -> None:
        self.notes.append(f"flush {event.session.events[-1].type}")
        if self.broken:
            raise OSError("disk full")

    async def _step(self, event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
        self.notes.append("step")
        return await next_()


async def stack(ctx: Context, replies: Sequence[Sequence[Step]]) -> tuple[ScriptedModel, Flushes]:
    model = ScriptedModel(*replies)
    _ = ctx.plugin(spine)
    await ctx.settled()
    ctx.llm.register_adapter(["test"], model)
    return model, Flushes(ctx)


async def test_S149_flushes_come_before_the_step_the_model_and_the_body() -> None:
    async with Context() as ctx:
        _, flushes = await stack(ctx, [call(("c1", "nope", "")), say("ok")])
        handle = await ctx.agents.create(provider="test", model="m")
        handle.agent.followup("M")
        with anyio.fail_after(5):
            await handle.agent.when_idle()
        assert flushes.notes == [
            "flush agent/inbox/spliced",
            "step",
            "flush request/context",
            "flush tool/call",
            "flush step/end",
            "step",
            "flush step/start",
        ]


async def test_S150_a_failing_flush_means_no_step_and_no_call() -> None:
    async with Context() as ctx:
        model, flushes = await stack(ctx, [])
        handle = await ctx.agents.create(provider="test", model="m")
        flushes.broken = True
        handle.agent.followup("M")
        with anyio.fail_after(5):
            await handle.agent.when_idle()
        assert model.requests == []
        assert handle.agent.session.events[-1].type == "turn/end"
        assert "step/start" not in [event.type for event in handle.agent.session.events]


async def test_S150_a_flush_that_fails_before_the_model_reaches_no_adapter() -> None:
    async with Context() as ctx:
        model, flushes = await stack(ctx, [])
        handle = await ctx.agents.create(provider="test", model="m")

        async def break_now(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            answer = await next_()
            flushes.broken = True
            return answer

        ctx.on(PreStep, break_now, everywhere=True)
        handle.agent.followup("M")
        with anyio.fail_after(5):
            await handle.agent.when_idle()
        assert model.requests == []
        types = [event.type for event in handle.agent.session.events]
        assert types[-3:] == ["assistant/attempt", "step/end", "turn/end"]


async def test_S151_what_was_sent_is_stored_when_the_model_is_called() -> None:
    async with Context() as ctx:
        store = MemoryLogStore()
        seen: list[str] = []

        async def look() -> None:
            async with await ctx.session_persistence.open(SessionId("s1"), "read") as reader:
                seen.extend(event.type for event in await reader.read())

        _ = ctx.plugin(MemoryPersistence, store)
        await stack(ctx, [[look, *say("ok")]])
        handle = await ctx.agents.create(session_id=SessionId("s1"), provider="test", model="m")
        handle.agent.followup("M")
        with anyio.fail_after(5):
            await handle.agent.when_idle()
        assert seen[-3:] == ["user/message", "request/header", "request/context"]
