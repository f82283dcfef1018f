"""Field cases 01-26 and 38: recorded kinds of provider faults, through the real HTTP path."""

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

from dsh_brand import to_json
from dsh_llm import (
    BlockAssembler,
    ErrorFinish,
    FinishReason,
    GenerateOptions,
    LlmError,
    LlmFailure,
    ToolCallBlock,
    create_user_message,
)
from dsh_llm_openai import OpenAiAdapter
from dsh_llm_scripted import MockServer, Reply, bytewise, raw_reply, split_at

_CASES = Path(__file__).resolve().parents[5] / "shared" / "field-cases"
_WIRE = {*(f"{number:02}" for number in range(1, 27)), "38"}

Case = Mapping[str, Any]  # the cases are plain JSON


def _cases() -> list[Case]:
    path = _CASES / "cases.json"
    if not path.exists():
        return []
    cases: list[Case] = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return [case for case in cases if case["id"][:2] in _WIRE]


_PARAMETERS = [pytest.param(case, id=case["id"]) for case in _cases()] or [
    pytest.param(
        {}, marks=pytest.mark.skip(reason="the field cases are not beside this repository")
    )
]


def _replies(case: Case) -> list[Reply]:
    attempts = case["transport"].get("attempts", [case["transport"]])
    replies = []
    for name, transport in zip(case["files"], attempts, strict=True):
        reply = raw_reply(
            [(_CASES / name).read_bytes()],
            status=transport["status"],
            headers=transport["headers"],
            ending=transport.get("then", "complete"),
        )
        replies.append(split_at(reply, transport.get("read_splits", [])))
    return replies


async def _attempt(adapter: OpenAiAdapter) -> tuple[BlockAssembler, FinishReason, list[str]]:
    options = GenerateOptions(
        provider="case", model="m", messages=[create_user_message("go")], system="s"
    )
    assembler = BlockAssembler()
    kinds: list[str] = []
    try:
        with anyio.fail_after(5):
            async with aclosing(adapter.stream(options)) as stream:
                async for chunk in stream:
                    kinds.append(str(chunk.__struct_config__.tag))
                    assembler.push(chunk)
    except LlmError as error:
        return assembler, ErrorFinish(error.failure), kinds
    return assembler, assembler.finish, kinds


async def _last_attempt(replies: Sequence[Reply]) -> tuple[BlockAssembler, FinishReason, list[str]]:
    async with MockServer(replies) as server:
        adapter = OpenAiAdapter({"case": {"base_url": server.base_url}})
        try:
            for _ in replies[:-1]:
                _, finish, _ = await _attempt(adapter)
                assert isinstance(finish, ErrorFinish)
                assert finish.failure.code == "TRANSPORT"
            return await _attempt(adapter)
        finally:
            await adapter.aclose()


def _check(expected: Case, assembler: BlockAssembler, finish: FinishReason) -> None:
    assert finish.kind == expected["finish"]
    if isinstance(finish, ErrorFinish):
        _check_failure(expected, finish.failure)
    elif "blocks" in expected:
        blocks = assembler.blocks()
        ids = [block.id for block in blocks if isinstance(block, ToolCallBlock)]
        assert len(set(ids)) == len(ids)
        assert all(ids)
        wanted = expected.get("committed_blocks", expected["blocks"])
        assert [_without_id(to_json(block)) for block in blocks] == [
            _without_id(block) for block in wanted
        ]
        _check_ids(ids, wanted)
    if "usage" in expected:
        usage = to_json(assembler.usage)
        assert isinstance(usage, dict)
        assert {name: usage.get(name) for name in expected["usage"]} == expected["usage"]


def _without_id(block: object) -> object:
    assert isinstance(block, dict)
    return {name: value for name, value in block.items() if name != "id"}


def _check_ids(ids: Sequence[str], wanted: Sequence[Mapping[str, object]]) -> None:
    stated = [str(block["id"]) for block in wanted if block["type"] == "tool-call"]
    assert all(want in ("*", got) for got, want in zip(ids, stated, strict=True))


def _check_failure(expected: Case, failure: LlmFailure) -> None:
    assert failure.code in expected.get("code_in", [expected.get("code")])
    assert expected.get("message_contains", "") in failure.message
    seen = to_json(failure)
    assert isinstance(seen, dict)
    stated = expected.get("failure", {})
    assert {name: seen.get(name) for name in stated} == stated


@pytest.mark.parametrize("case", _PARAMETERS)
async def test_field_case_served_as_recorded(case: Case) -> None:
    assembler, finish, kinds = await _last_attempt(_replies(case))
    _check(case["expect"], assembler, finish)
    if "finish" in kinds:
        assert kinds[-1] == "finish"
        assert kinds.count("usage") <= 1


@pytest.mark.parametrize("case", _PARAMETERS)
async def test_field_case_served_one_byte_per_read(case: Case) -> None:
    assembler, finish, _ = await _last_attempt([bytewise(reply) for reply in _replies(case)])
    _check(case["expect"], assembler, finish)
