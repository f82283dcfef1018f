"""The registry and the initiator scope, without a loop."""

from typing import cast

import anyio
import anyio.lowlevel
import pytest

from dsh_agent import (
    Agent,
    AgentCreated,
    AgentDisposed,
    AgentFactory,
    AgentHandle,
    AgentRegistry,
    AgentRegistryError,
    AgentSessionStart,
    CreateRequest,
    InitiatorError,
    ResumeRequest,
    current_initiator,
    initiated_by,
    require_initiator,
)
from dsh_cordis import Context
from dsh_session import Session, SessionId


class Puppet:
    """Just enough of an agent to be listed."""

    def __init__(self, ctx: Context, name: str) -> None:
        self.ctx = ctx
        self.id = SessionId(name)
        self.session = Session.create(self.id)


def puppet(ctx: Context, name: str) -> Agent:
    return cast("Agent", Puppet(ctx, name))


async def registry(ctx: Context) -> AgentRegistry:
    _ = ctx.plugin(AgentRegistry)
    await ctx.settled()
    agents = ctx.get(AgentRegistry)
    assert agents is not None
    return agents


def record(ctx: Context) -> list[str]:
    seen: list[str] = []

    async def created(event: AgentCreated) -> None:
        seen.append(f"created {event.agent.id} {event.source}")

    ctx.on(AgentCreated, created, everywhere=True)
    ctx.on(AgentSessionStart, lambda e: seen.append(f"start {e.agent.id}"), everywhere=True)
    ctx.on(AgentDisposed, lambda e: seen.append(f"disposed {e.agent.id}"), everywhere=True)
    return seen


async def test_A49_A50_register_lists_announces_and_gives_the_detach() -> None:
    async with Context() as ctx:
        agents = await registry(ctx)
        seen = record(ctx)
        parent, child = puppet(ctx, "p"), puppet(ctx, "c")
        await agents.register(parent)
        detach = await agents.register(child, parent)
        assert agents.list() == [parent, child]
        assert agents.roots() == [parent]
        assert agents.is_owned_by(child, parent)
        assert not agents.is_owned_by(parent, child)
        await detach()
        await detach()
        assert seen == [
            "created p startup",
            "start p",
            "created c startup",
            "start c",
            "disposed c",
        ]
        assert agents.get("c") is None


async def test_A49_what_the_registry_refuses() -> None:
    async with Context() as ctx:
        agents = await registry(ctx)
        agent = puppet(ctx, "a")
        agents.enter(agent)
        with pytest.raises(AgentRegistryError) as twice:
            agents.enter(puppet(ctx, "a"))
        await agents.announce(agent, "startup")
        with pytest.raises(AgentRegistryError) as again:
            await agents.announce(agent, "startup")
        with pytest.raises(AgentRegistryError) as unknown:
            await agents.announce(puppet(ctx, "b"), "startup")
        wrong = Puppet(ctx, "x")
        wrong.id = SessionId("y")
        with pytest.raises(AgentRegistryError) as mismatch:
            agents.enter(cast("Agent", wrong))
        codes = [caught.value.code for caught in (twice, again, unknown, mismatch)]
        assert codes == [
            "AGENT_EXISTS",
            "AGENT_ALREADY_ANNOUNCED",
            "AGENT_NOT_LIVE",
            "AGENT_ID_MISMATCH",
        ]


async def test_A51_a_stale_detach_spares_the_successor() -> None:
    async with Context() as ctx:
        agents = await registry(ctx)
        detach = agents.enter(puppet(ctx, "a"))
        await detach()
        successor = puppet(ctx, "a")
        agents.enter(successor)
        await detach()
        assert agents.get("a") is successor


async def test_A51_a_detach_waits_for_the_announcement() -> None:
    async with Context() as ctx:
        agents = await registry(ctx)
        agent = puppet(ctx, "a")
        entered, release = anyio.Event(), anyio.Event()
        order: list[str] = []

        async def slow(event: AgentCreated) -> None:
            entered.set()
            await release.wait()
            order.append("listener")

        async def leave() -> None:
            await detach()
            order.append("detached")

        ctx.on(AgentCreated, slow, everywhere=True)
        detach = agents.enter(agent)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(agents.announce, agent, "startup")
                await entered.wait()
                tasks.start_soon(leave)
                await anyio.wait_all_tasks_blocked()
                release.set()
        assert order == ["listener", "detached"]


async def test_A52_a_raising_listener_is_paired_with_the_disposal() -> None:
    async with Context() as ctx:
        agents = await registry(ctx)
        seen = record(ctx)

        async def refuse(event: AgentCreated) -> None:
            raise RuntimeError("no")

        ctx.on(AgentCreated, refuse, everywhere=True)
        with pytest.raises(RuntimeError, match="no"):
            await agents.register(puppet(ctx, "a"))
        assert seen == ["created a startup", "disposed a"]
        assert agents.list() == []


class Factory:
    """Makes puppets; remembers who asked."""

    def __init__(self) -> None:
        self.requests: list[CreateRequest | ResumeRequest] = []

    async def create(self, owner: Context, request: CreateRequest) -> AgentHandle:
        self.requests.append(request)
        return AgentHandle(puppet(owner, "made"), anyio.lowlevel.checkpoint)

    async def resume(self, owner: Context, request: ResumeRequest) -> AgentHandle:
        self.requests.append(request)
        return AgentHandle(puppet(owner, request.session_id), anyio.lowlevel.checkpoint)


async def test_A53_one_factory_at_a_time_and_none_without_its_owner() -> None:
    async with Context() as ctx:
        await registry(ctx)
        factory: AgentFactory = Factory()

        class Needs(Context):
            agents: AgentRegistry

        def provider(needs: Needs) -> None:
            needs.agents.set_factory(factory)

        async with ctx.plugin(provider):
            with pytest.raises(AgentRegistryError) as second:
                ctx.agents.set_factory(factory)
            handle = await ctx.agents.create(provider="p", model="m", max_tokens=9)
            assert handle.agent.id == "made"
        with pytest.raises(AgentRegistryError) as none:
            await ctx.agents.resume(SessionId("s"))
        codes = [second.value.code, none.value.code]
        assert codes == ["FACTORY_REGISTERED", "NO_AGENT_FACTORY"]


async def test_A56_A57_the_initiator_scope_nests_and_restores() -> None:
    async with Context() as ctx:
        agents = await registry(ctx)
        one, two = puppet(ctx, "1"), puppet(ctx, "2")

        async def later() -> list[Agent | None]:
            before = current_initiator()
            await anyio.lowlevel.checkpoint()
            return [before, current_initiator(), agents.without_initiator(current_initiator)]

        waiting = agents.with_initiator(one, later)
        assert current_initiator() is None
        assert await waiting == [one, one, None]
        nested = agents.with_initiator(one, lambda: agents.with_initiator(two, require_initiator))
        assert nested is two
        with pytest.raises(InitiatorError) as caught:
            require_initiator()
        assert caught.value.code == "NO_INITIATOR"


async def test_A58_unloading_waits_for_what_runs_and_refuses_what_comes() -> None:
    async with Context() as ctx, anyio.create_task_group() as tasks:
        agents = await registry(ctx)
        agent = puppet(ctx, "1")
        release, unloaded = anyio.Event(), anyio.Event()

        async def unload() -> None:
            await ctx.unplug(AgentRegistry)
            unloaded.set()

        async def refused() -> None:
            for begin in (agents.with_initiator, lambda _, fn: agents.without_initiator(fn)):
                with pytest.raises(InitiatorError) as caught:
                    begin(agent, current_initiator)
                assert caught.value.code == "INITIATOR_DISPOSED"

        async def never() -> None:
            raise AssertionError("a boundary opened behind the unload")

        late = agents.with_initiator(agent, never)
        tasks.start_soon(agents.with_initiator, agent, release.wait)
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(unload)
        await anyio.wait_all_tasks_blocked()
        assert not unloaded.is_set()
        await refused()
        release.set()
        with anyio.fail_after(5):
            await unloaded.wait()
        await refused()
        with pytest.raises(InitiatorError):
            await late


async def test_A58_what_triggers_the_unload_is_not_waited_for() -> None:
    async with Context() as ctx:
        agents = await registry(ctx)

        async def unload() -> None:
            await ctx.unplug(AgentRegistry)

        async def outer() -> None:
            await agents.with_initiator(puppet(ctx, "inner"), unload)

        with anyio.fail_after(5):
            await agents.with_initiator(puppet(ctx, "outer"), outer)
        assert ctx.get(AgentRegistry) is None


async def test_A58_who_disposes_the_whole_tree_is_not_waited_for() -> None:
    ctx = Context()
    async with ctx:
        agents = await registry(ctx)
        with anyio.fail_after(5):
            await agents.with_initiator(puppet(ctx, "1"), ctx.fiber.dispose)


async def test_A58_a_lineage_skips_what_has_ended() -> None:
    """Each agent wakes the next from a task that its own boundary started."""
    async with Context() as ctx, anyio.create_task_group() as tasks:
        agents = await registry(ctx)
        lengths: list[int] = []
        done = anyio.Event()

        async def wake(left: int) -> None:
            await anyio.lowlevel.checkpoint()  # the boundary that started this is over by now
            lengths.append(lineage())
            if left:
                agents.with_initiator(puppet(ctx, "1"), lambda: tasks.start_soon(wake, left - 1))
            else:
                done.set()

        def lineage() -> int:
            with initiated_by(None) as boundary:
                count, outer = 0, boundary.outer
                while outer is not None:
                    count, outer = count + 1, outer.outer
                return count

        tasks.start_soon(wake, 5)
        with anyio.fail_after(5):
            await done.wait()
        assert lengths == [0] * 6
