"""Field cases 01 to 12, from the recorded answer to what runs, what is logged and what is sent next."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

import dsh_llm_openai
from dsh_llm_scripted import MockServer, raw_reply, text_reply
from dsh_session import ToolCallEvent, ToolResultEvent
from dsh_spine import SpineContext, spine
from dsh_tools import ToolDefinition, ToolRunContext, tool

_CASES = Path(__file__).resolve().parents[2] / "shared" / "field-cases"

Case = Mapping[str, Any]  # the cases are plain JSON


def _cases() -> list[Case]:
    path = _CASES / "cases.json"
    if not path.exists():
        return []
    cases: list[Case] = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return [case for case in cases if case["id"][:2] in {f"{number:02}" for number in range(1, 13)}]


_PARAMETERS = [pytest.param(case, id=case["id"]) for case in _cases()] or [
    pytest.param(
        {}, marks=pytest.mark.skip(reason="the field cases are not beside this repository")
    )
]


def _tools(ran: list[str]) -> list[ToolDefinition]:
    """What the recorded answers call."""

    @tool
    async def read_file(run: ToolRunContext, path: str) -> str:
        """Read a file."""
        ran.append(run.call_id)
        return path

    @tool
    async def get_time(run: ToolRunContext, zone: str) -> str:
        """Tell the time."""
        ran.append(run.call_id)
        return zone

    @tool
    async def add(run: ToolRunContext, a: int, b: int) -> str:
        """Add."""
        ran.append(run.call_id)
        return str(a + b)

    @tool
    async def mul(run: ToolRunContext, a: int, b: int) -> str:
        """Multiply."""
        ran.append(run.call_id)
        return str(a * b)

    @tool
    async def list_dir(run: ToolRunContext, path: str) -> str:
        """List a folder."""
        ran.append(run.call_id)
        return path

    @tool
    async def ping(run: ToolRunContext) -> str:
        """Answer."""
        ran.append(run.call_id)
        return "pong"

    @tool
    async def write_file(run: ToolRunContext, path: str, content: str) -> str:
        """Write a file."""
        ran.append(run.call_id)
        return path

    return [read_file, get_time, add, mul, list_dir, ping, write_file]


@pytest.mark.parametrize("case", _PARAMETERS)
async def test_field_case_in_the_whole_stack(case: Case) -> None:
    transport = case["transport"]
    body = (_CASES / case["files"][0]).read_bytes()
    reply = raw_reply([body], status=transport["status"], headers=transport["headers"])
    ran: list[str] = []
    async with (
        MockServer([reply, text_reply("seen"), text_reply("ok")], strict=True) as server,
        SpineContext() as ctx,
    ):
        ctx.plugin(spine)
        route = {"preset": "generic", "base_url": server.base_url}
        ctx.plugin(dsh_llm_openai, {"providers": {"mock": route}})
        await ctx.settled()
        for each in _tools(ran):
            ctx.tools.register(each)
        agent = (await ctx.agents.create(provider="mock", model="m")).agent
        with anyio.fail_after(5):
            for text in ("go", "go on"):
                agent.followup(text)
                await agent.when_idle()
        events = [event.data for event in agent.session.events]
        called = [data for data in events if isinstance(data, ToolCallEvent)]
        results = [data for data in events if isinstance(data, ToolResultEvent)]
        sent = server.requests[-1].body
    _check(case["expect"], called, results, ran)
    _check_request(sent, called)


def _check(
    expected: Case, called: list[ToolCallEvent], results: list[ToolResultEvent], ran: list[str]
) -> None:
    blocks = expected.get("committed_blocks", expected["blocks"])
    wanted = [block for block in blocks if block["type"] == "tool-call"]
    ids = [str(data.call_id) for data in called]
    assert len(set(ids)) == len(ids) == len(wanted)
    for data, block in zip(called, wanted, strict=True):
        assert block["id"] in ("*", data.call_id)
        assert data.name == block["name"]
        assert data.arguments == block["arguments"]
    errors = expected.get("result_error", {})
    codes = {r.message.tool_call_id: r.error.code for r in results if r.error is not None}
    assert codes == errors
    assert [r.message.tool_call_id for r in results] == ids
    assert ran == expected.get("tools_run", [each for each in ids if each not in errors])


def _check_request(sent: Mapping[str, Any], called: list[ToolCallEvent]) -> None:
    """Every call has one answer in the last request, and arguments that are JSON objects."""
    messages = sent["messages"]
    calls = [call for message in messages for call in message.get("tool_calls") or ()]
    answers = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert [call["id"] for call in calls] == answers == [data.call_id for data in called]
    for call in calls:
        assert isinstance(json.loads(call["function"]["arguments"]), dict)
