"""The whole stack: the real HTTP adapter, real tools, a real log on disk, and a resumption."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

import dsh_fs
import dsh_llm_openai
import dsh_session_jsonl
from dsh_agent import Agent
from dsh_cordis import Context
from dsh_llm import message_text
from dsh_llm_scripted import Call, MockServer, text_reply, tool_call_reply
from dsh_session import SessionId, SessionMeta
from dsh_spine import spine

S1 = SessionId("s1")


@asynccontextmanager
async def stack(base_url: str, folder: Path) -> AsyncGenerator[Context]:
    async with Context() as ctx:
        profile = {"preset": "generic", "base_url": base_url, "anonymous": True}
        _ = ctx.plugin(spine)
        _ = ctx.plugin(dsh_session_jsonl, {"root": str(folder / "log"), "compression": "none"})
        _ = ctx.plugin(dsh_fs, {"root": str(folder / "work"), "confine": True})
        _ = ctx.plugin(dsh_llm_openai, {"providers": {"mock": profile}})
        await ctx.settled()
        yield ctx


def roles_of(body: Mapping[str, object]) -> list[str]:
    messages = body["messages"]
    assert isinstance(messages, list)
    return [message["role"] for message in messages]


async def ask(agent: Agent, text: str) -> str:
    agent.followup(text)
    with anyio.fail_after(5):
        await agent.when_idle()
    return message_text(agent.session.derive_messages()[-1])


async def test_an_agent_reads_a_file_and_goes_on_in_another_process(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "plan.md").write_text("sow, water, reap\n", encoding="utf-8")
    script = [
        tool_call_reply(Call("read", {"file_path": "plan.md"}), text="Let me look."),
        text_reply("First sow."),
        text_reply("Then water."),
    ]
    async with MockServer(script, strict=True) as server:
        async with stack(server.base_url, tmp_path) as ctx:
            handle = await ctx.agents.create(
                session_id=S1, provider="mock", model="m", meta=SessionMeta(cwd=str(work))
            )
            assert await ask(handle.agent, "What is first?") == "First sow."
            tool = next(m for m in handle.agent.session.derive_messages() if m.role == "tool")
            assert "sow, water, reap" in message_text(tool)
        async with stack(server.base_url, tmp_path) as ctx:
            resumed = await ctx.agents.resume(S1)
            assert await ask(resumed.agent, "And then?") == "Then water."
            log = list(resumed.agent.session.events)
        async with stack(server.base_url, tmp_path) as ctx:
            reader = await ctx.session_persistence.open(S1, "read")
            async with reader:
                assert list(await reader.read()) == log
        roles = [roles_of(request.body) for request in server.requests]
        assert roles == [
            ["system", "user"],
            ["system", "user", "assistant", "tool"],
            ["system", "user", "assistant", "tool", "assistant", "user"],
        ]
