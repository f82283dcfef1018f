"""Values on their way in and out of a body: lossless JSON, frozen, of one's own."""

import collections
import dataclasses
import datetime
import decimal
import enum
import types
from collections.abc import Mapping

import pytest
from pydantic import BaseModel

from dsh_brand import JsonValue
from dsh_tools import ToolDefinition, ToolOutput, ToolRunContext, ToolSuccess
from dsh_tools.testing import ToolBench, code_of, text_of, tool_bench


class Number(enum.IntEnum):
    ONE = 1


class Text(enum.StrEnum):
    A = "a"


class Model(BaseModel):
    a: int


@dataclasses.dataclass
class Data:
    a: int


class OwnDict(dict[str, int]):
    pass


GIVEN: list[object] = []


def raw(schema: Mapping[str, JsonValue], value: object) -> ToolDefinition:
    """Takes anything, and gives `value`."""

    async def execute(arguments: object, run: ToolRunContext) -> object:
        GIVEN.append(arguments)
        return value

    return ToolDefinition(
        name="raw",
        description="Raw.",
        parameters={"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        output=ToolOutput(schema=schema, render=lambda arguments, value: "rendered"),
        execute=execute,
    )


@pytest.mark.parametrize("sent", [{"a": "x"}, {"a": 1}, {}, [1], None, 7, "{broken"])
async def test_T7_a_raw_definition_gets_whatever_the_model_sent(sent: JsonValue) -> None:
    async with tool_bench(raw({}, "value")) as bench:
        GIVEN.clear()
        result = await bench.tools.execute(bench.call("raw", sent))
        assert (result.is_error, GIVEN) == (False, [sent])


async def test_T7_the_output_of_a_raw_definition_is_enforced_all_the_same() -> None:
    async with tool_bench(raw({"type": "string"}, 1)) as bench:
        assert code_of(await bench.run("raw", a="x")) == "INVALID_TOOL_OUTPUT"


async def value_of(bench: ToolBench) -> JsonValue:
    result = await bench.run("raw", a="x")
    assert isinstance(result, ToolSuccess)
    return result.value


shared = {"n": [1]}


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        2**53 - 1,
        -(2**53) + 1,
        1.5,
        1e300,
        "\U0001f600 \x00",
        [],
        {"": {"a": [None, False, {}]}},
        pytest.param([shared, shared], id="shared"),
    ],
)
async def test_T18_lossless_values_arrive_as_they_are(value: JsonValue) -> None:
    async with tool_bench(raw({}, value)) as bench:
        given = await value_of(bench)
        assert given == value
        assert type(given) is type(value) or isinstance(value, list | dict)


def cyclic() -> list[object]:
    value: list[object] = []
    value.append({"again": value})
    return value


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        float("-inf"),
        -0.0,
        2**53 + 1,
        -(10**30),
        (1,),
        {1},
        b"x",
        decimal.Decimal(1),
        datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
        Number.ONE,
        Text.A,
        Data(1),
        pytest.param(Model(a=1), id="model"),
        pytest.param(types.MappingProxyType({"a": 1}), id="mapping"),
        pytest.param(collections.OrderedDict(a=1), id="ordered"),
        pytest.param(OwnDict(a=1), id="subclass"),
        {1: 2},
        {None: 1},
        "\ud800",
        {"\ude00": 1},
        pytest.param(cyclic(), id="cycle"),
        pytest.param(lambda: 1, id="function"),
    ],
)
async def test_T18_what_json_would_lose_or_change_is_refused_both_ways(value: object) -> None:
    for placed in (value, [value], {"a": {"b": value}}):
        async with tool_bench(raw({}, placed)) as bench:
            given = await bench.run("raw", a="x")
            assert code_of(given) == "INVALID_TOOL_OUTPUT"
            assert "not lossless JSON" in text_of(given)
            GIVEN.clear()
            sent = await bench.tools.execute(bench.call("raw", placed))
            assert (sent.is_error, code_of(sent), GIVEN) == (True, None, [])
            assert len(text_of(sent)) < 400


async def test_T19_snapshots_are_frozen_copies_that_still_are_dicts_and_lists() -> None:
    value = {"list": [1, {"a": "b"}], "again": shared, "and again": shared}
    async with tool_bench(raw({}, value)) as bench:
        frozen = await value_of(bench)
        assert frozen == value
        assert isinstance(frozen, dict)
        inner = frozen["list"]
        assert isinstance(inner, list)
        # What the body does with its own value later changes nothing.
        value["list"].append("late")  # type: ignore[attr-defined]  # a list
        assert frozen == {"list": [1, {"a": "b"}], "again": {"n": [1]}, "and again": {"n": [1]}}
        for change in (
            lambda: frozen.update(x=1),
            lambda: frozen.pop("list"),
            lambda: frozen.setdefault("x", 1),
            lambda: frozen.clear(),
            lambda: inner.append(1),
            lambda: inner.sort(),
            lambda: inner.__setitem__(0, 2),
            lambda: inner.__iadd__([1]),
        ):
            with pytest.raises(TypeError):
                change()


def nested(levels: int) -> JsonValue:
    value: JsonValue = "x"
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


async def test_T19_depth_is_walked_without_recursion_and_bounded() -> None:
    async with tool_bench(raw({}, nested(3000))) as bench:
        value, levels = await value_of(bench), 0
        while isinstance(value, list | dict):
            value = value[0] if isinstance(value, list) else value["a"]
            levels += 1
        assert (value, levels) == ("x", 3000)
    async with tool_bench(raw({}, nested(100_000))) as bench:
        result = await bench.run("raw", a="x")
        assert code_of(result) == "INVALID_TOOL_OUTPUT"
        assert "nested deeper" in text_of(result)
