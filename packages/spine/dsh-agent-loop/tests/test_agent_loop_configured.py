"""Agents that a configuration names."""

from collections.abc import Mapping

import anyio
import anyio.lowlevel
import pytest

from dsh_agent import ConfigStartFailed
from dsh_agent_loop.config import Config
from dsh_agent_loop.testing import ScriptedModel, mount_loop
from dsh_cordis import Context
from dsh_session import SessionHeader, SessionId
from dsh_session_persistence.testing.memory import MemoryLogStore, MemoryPersistence

STORED = SessionId("stored")


async def store_with_one_session() -> MemoryLogStore:
    store = MemoryLogStore()
    async with Context() as ctx:
        _ = ctx.plugin(MemoryPersistence, store)
        await ctx.settled()
        header = SessionHeader(id=STORED, created_at=0)
        async with await ctx.session_persistence.create(header) as handle:
            await handle.flush()
    return store


async def started(
    ctx: Context, agents: list[Mapping[str, object]], count: int, **more: object
) -> tuple[list[str], list[ConfigStartFailed]]:
    failures: list[ConfigStartFailed] = []
    ctx.on(ConfigStartFailed, failures.append, everywhere=True)
    mount_loop(ctx, config={"agents": agents, **more})
    await ctx.settled()
    ctx.llm.register_adapter(["test"], ScriptedModel())
    with anyio.fail_after(5):
        while len(ctx.agents.list()) + len(failures) < count:
            await anyio.lowlevel.checkpoint()
    return [agent.id for agent in ctx.agents.list()], failures


async def test_A66_a_label_is_the_beginning_of_a_minted_id() -> None:
    async with Context() as ctx:
        ids, failures = await started(ctx, [{"id": "main", "provider": "test", "model": "m"}], 1)
        assert ids[0].startswith("main-session-")
        assert failures == []
        (agent,) = ctx.agents.list()
        assert (agent.options.provider, agent.options.model) == ("test", "m")


async def test_A66_a_session_id_means_resume_if_stored_else_create() -> None:
    async with Context() as ctx:
        _ = ctx.plugin(MemoryPersistence, await store_with_one_session())
        agents: list[Mapping[str, object]] = [
            {"id": "a", "session_id": "stored"},
            {"id": "b", "session_id": "new"},
        ]
        ids, failures = await started(ctx, agents, 2)
        assert (sorted(ids), failures) == (["new", "stored"], [])
        lengths = {agent.id: agent.session.first_live_seq for agent in ctx.agents.list()}
        assert lengths["new"] == 0


async def test_A66_resuming_needs_history_and_a_failure_concerns_no_other() -> None:
    async with Context() as ctx:
        _ = ctx.plugin(MemoryPersistence, MemoryLogStore())
        agents: list[Mapping[str, object]] = [
            {"id": "a", "resume_session_id": "nowhere"},
            {"id": "b"},
        ]
        ids, failures = await started(ctx, agents, 2)
        assert len(ids) == 1
        assert [failure.session_id for failure in failures] == ["nowhere"]


async def test_A66_a_launcher_overrides_by_label() -> None:
    async with Context() as ctx:
        ids, _ = await started(
            ctx, [{"id": "a", "session_id": "x"}], 1, launch={"a": {"session_id": "y"}}
        )
        assert ids == ["y"]


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"agents": [{"id": ""}]}, id="empty-label"),
        pytest.param({"agents": [{"id": "a", "session_id": ""}]}, id="empty-id"),
        pytest.param(
            {"agents": [{"id": "a", "session_id": "x", "resume_session_id": "x"}]}, id="both"
        ),
        pytest.param(
            {"agents": [{"id": "a", "session_id": "x"}, {"id": "b", "resume_session_id": "x"}]},
            id="one-id-twice",
        ),
        pytest.param({"agents": [{"id": "a"}, {"id": "a"}]}, id="one-label-twice"),
    ],
)
def test_A66_what_is_refused_at_load(config: Mapping[str, object]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        Config.model_validate(config)
