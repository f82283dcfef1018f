"""The Messages dialect of the mock server (L156, L157, L211)."""

import json
from collections.abc import Mapping, Sequence

import httpx
import pytest

from dsh_llm_scripted import (
    BEHAVIOURS,
    Call,
    MockServer,
    Speech,
    Step,
    message_text_reply,
    message_tool_reply,
    text_reply,
    tool_call_reply,
)
from dsh_llm_scripted.dialects import MESSAGES

BODY: Mapping[str, object] = {
    "max_tokens": 5,
    "messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}],
}


async def ask(
    server: MockServer,
    body: Mapping[str, object] = BODY,
    path: str = "/messages",
    headers: Mapping[str, str] | None = None,
) -> httpx.Response:
    async with httpx.AsyncClient(base_url=server.base_url, trust_env=False) as client:
        return await client.post(path, json=body, headers=headers)


async def test_L156_a_behaviour_is_played_in_the_dialect_of_the_path() -> None:
    async with MockServer(["success"] * 2) as server:
        assert (await ask(server)).text.startswith("event: message_start\n")
        assert (await ask(server, path="/chat/completions")).text.startswith('data: {"id"')


async def test_L156_both_key_headers_are_taken_and_refusals_are_in_the_dialect() -> None:
    async with MockServer(["success"] * 2, api_key="k") as server:
        refused = await ask(server)
        assert refused.status_code == 401
        assert refused.json()["error"]["type"] == "authentication_error"
        assert (await ask(server, headers={"x-api-key": "k"})).status_code == 200
        assert (await ask(server, headers={"authorization": "Bearer k"})).status_code == 200
        assert len(server.requests) == 2


_ENDS = {"stall", "connection_reset", "stream_disconnect", "partial_disconnect"}


async def test_L157_every_behaviour_can_be_played() -> None:
    names: list[Step] = [name for name in BEHAVIOURS if name not in _ENDS]
    async with MockServer(names) as server:
        answers = [await ask(server) for _ in names]
        assert [record.behaviour for record in server.requests] == names
    errors = [answer for answer in answers if answer.status_code >= 400]
    assert len(errors) == 7
    assert all(answer.json()["type"] == "error" for answer in errors)


@pytest.mark.parametrize(
    ("speech", "chat", "messages"),
    [
        (Speech(text="Hello"), text_reply("Hello"), message_text_reply("Hello")),
        (
            Speech(text="Cut", finish="length"),
            text_reply("Cut", finish="length"),
            message_text_reply("Cut", stop_reason="max_tokens"),
        ),
        (
            Speech(calls=(Call("f", {"a": 1}),), reasoning="hm"),
            tool_call_reply(Call("f", {"a": 1}), reasoning="hm"),
            message_tool_reply(Call("f", {"a": 1}), reasoning="hm"),
        ),
    ],
)
async def test_speech_is_put_into_the_protocol_that_is_asked(
    speech: Speech, chat: object, messages: object
) -> None:
    async with MockServer([speech, lambda body: speech]) as server:
        assert (await ask(server, path="/chat/completions")).content == getattr(chat, "body")  # noqa: B009  # replies of two builders
        assert (await ask(server)).content == getattr(messages, "body")  # noqa: B009  # as above


def turn(role: str, *blocks: object) -> dict[str, object]:
    return {"role": role, "content": list(blocks)}


USE = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "x"}]}
TEXT = {"type": "text", "text": "x"}


@pytest.mark.parametrize(
    ("turns", "problem"),
    [
        ([turn("user", TEXT), turn("assistant", USE), turn("user", RESULT, TEXT)], None),
        ([turn("user", TEXT), turn("system", TEXT), turn("assistant", TEXT)], None),
        ([], "non-empty list"),
        ([turn("assistant", TEXT)], "not the user's"),
        ([turn("user", TEXT), turn("user", TEXT)], "repeats the role"),
        ([turn("user", TEXT), turn("assistant", USE)], "no answer"),
        ([turn("user", TEXT), turn("assistant", USE), turn("user", TEXT, RESULT)], "before the"),
        ([turn("user", RESULT)], "does not call"),
        ([turn("user", TEXT), turn("assistant", USE, USE)], "repeats the tool call id"),
        ([turn("user", {"type": "text", "text": " "})], "is empty"),
        ([turn("user")], "no list of blocks"),
        ([turn("user", TEXT), turn("assistant", TEXT), turn("system", TEXT)], "without a user"),
    ],
)
def test_L211_strict_refuses_what_strict_providers_refuse(
    turns: Sequence[object], problem: str | None
) -> None:
    found = MESSAGES.broken_rule({"max_tokens": 1, "messages": turns})
    assert (found is None) == (problem is None)
    assert problem is None or problem in (found or "")


def test_L211_a_limit_is_required() -> None:
    assert MESSAGES.broken_rule({"messages": [turn("user", TEXT)]}) == "max_tokens is missing"


def test_arguments_stream_as_two_halves_of_their_text() -> None:
    body = message_tool_reply(Call("f", {"ab": 1})).body.decode()
    deltas = [json.loads(line[6:]) for line in body.splitlines() if "input_json_delta" in line]
    assert "".join(event["delta"]["partial_json"] for event in deltas) == '{"ab":1}'
    assert len(deltas) == 2
