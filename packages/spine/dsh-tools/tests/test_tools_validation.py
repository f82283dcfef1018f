"""Values against the schema subset."""

import inspect
import sys
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_brand import JsonValue
from dsh_tools import JsonSchemaError, Violation, assert_json_schema, tool, validate
from dsh_tools.testing import code_of, text_of, tool_bench
from dsh_tools.validation import Checked


def found(schema: dict[str, JsonValue], value: JsonValue) -> list[tuple[str, str]]:
    violations = validate(schema, value, label="value")
    assert Checked(schema).violations(value, "value") == violations
    return [(v.path, v.kind) for v in violations]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("string", ["", "1"], [1, None, ["a"]]),
        ("number", [1, 1.5, 2**53], ["1", True, None]),
        ("integer", [1, 2.0, -3], [1.5, False, "1"]),
        ("boolean", [True, False], [0, 1, "true"]),
        ("null", [None], [0, False, ""]),
        ("object", [{}, {"a": 1}], [[], "x"]),
        ("array", [[], [1]], [{}, "x"]),
    ],
)
def test_T24_T25_nothing_is_coerced(kind: str, good: list[JsonValue], bad: list[JsonValue]) -> None:
    assert [found({"type": kind}, value) for value in good] == [[]] * len(good)
    assert [found({"type": kind}, value) for value in bad] == [[("value", "type")]] * len(bad)


def test_T24_literals_keep_booleans_apart_from_numbers() -> None:
    assert found({"type": "number", "enum": [1, 2]}, 1.0) == []
    assert found({"type": "boolean", "const": True}, 1) == [("value", "type")]
    assert found({"type": "integer", "enum": [1]}, 2) == [("value", "enum")]
    assert found({"type": "integer", "const": 1}, 2) == [("value", "const")]


def test_T26_extra_keys_pass_unless_forbidden_and_defaults_are_not_filled() -> None:
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"a": {"type": "string", "default": "x"}},
        "required": ["a"],
    }
    assert found(schema, {"a": "", "z": 1}) == []
    assert found(schema, {}) == [("a", "missing")]
    assert found({**schema, "additionalProperties": False}, {"a": "", "z": 1}) == [
        ("z", "additional")
    ]


def test_T27_all_violations_are_found_missing_names_first() -> None:
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {
            "todos": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"status": {"type": "string", "enum": ["done"]}, "n": {}},
                    "required": ["status", "n"],
                },
            },
            "b": {"type": "integer"},
        },
        "required": ["b", "c", "todos"],
        "additionalProperties": False,
    }
    schema["properties"] = {**schema["properties"], "c": {}}  # type: ignore[dict-item]  # a dict
    value: JsonValue = {"x": 1, "todos": [{"status": 1}, {"n": 0, "status": "open"}, 7], "b": "1"}
    assert found(schema, value) == [
        ("c", "missing"),
        ("todos[0].n", "missing"),
        ("todos[0].status", "type"),
        ("todos[1].status", "enum"),
        ("todos[2]", "type"),
        ("b", "type"),
        ("x", "additional"),
    ]


def test_T28_texts_quote_the_path_and_a_bounded_value() -> None:
    (violation,) = validate({"type": "integer"}, "x" * 500, label="arguments")
    assert violation.text.startswith("'arguments': expected an integer, not \"xxx")
    assert len(violation.text) < 150


def test_T28_odd_names_are_quoted_in_paths() -> None:
    schema: dict[str, JsonValue] = {"type": "object", "properties": {"a.b": {"type": "null"}}}
    assert found(schema, {"a.b": 1}) == [('["a.b"]', "type")]


def test_T29_exactly_one_branch_must_fit() -> None:
    schema: dict[str, JsonValue] = {"oneOf": [{"type": "integer"}, {"type": "number"}]}
    assert found(schema, 1.5) == []
    assert found(schema, 1) == [("value", "one-of")]
    (violation,) = validate(schema, "x", label="value")
    assert "fits 0" in violation.text


def nested_schema(levels: int) -> dict[str, JsonValue]:
    schema: dict[str, JsonValue] = {"type": "integer"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return schema


def nested_value(levels: int) -> JsonValue:
    value: JsonValue = "wrong"
    for _ in range(levels):
        value = [value]
    return value


def test_T30_at_least_100_levels_are_walked_and_deeper_is_one_violation() -> None:
    assert [kind for _, kind in found(nested_schema(100), nested_value(100))] == ["type"]
    assert [kind for _, kind in found(nested_schema(900), nested_value(900))] == ["depth"]


def test_T30_levels_under_a_free_node_do_not_count() -> None:
    assert found({"type": "array", "items": {}}, nested_value(2900)) == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_T30_no_value_makes_the_validator_raise(value: JsonValue) -> None:
    schema: dict[str, JsonValue] = {
        "type": "object",
        "properties": {"": {"oneOf": [{"type": "string", "const": "x"}, nested_schema(3)]}},
        "required": [""],
        "additionalProperties": False,
    }
    first: list[Violation] = validate(schema, value, label="value")
    assert first == validate(schema, value, label="value")


@tool
async def strict(
    one: Literal[1], flag: Literal[True], count: int, names: list[str], any_: JsonValue = None
) -> str:
    """Take what fits.

    Args:
        one: The number.
        flag: Yes.
        count: How many.
        names: Any.
        any_: Whatever.
    """
    return f"{one!r} {flag!r} {count!r} {names!r}"


async def test_T124_the_gaps_of_the_libraries_around_are_closed() -> None:
    async with tool_bench(strict) as bench:
        good = {"one": 1, "flag": True, "count": 2, "names": ["x"]}
        assert text_of(await bench.run("strict", **good)) == "1 True 2 ['x']"
        # What a strict literal lets through, and what a lax parser makes fit.
        for name, value in (("one", True), ("flag", 1), ("count", "2"), ("count", True)):
            refused = await bench.run("strict", **{**good, name: value})
            assert code_of(refused) == "INVALID_ARGS"
            assert f"'{name}'" in text_of(refused)
        # All of it, with paths of our spelling.
        many = await bench.run("strict", one=True, flag=1, count="2", names=["a", 1, 2])
        for path in ("one", "flag", "count", "names[1]", "names[2]"):
            assert f"'{path}'" in text_of(many)
        # What is deeper than a library walks.
        deep = await bench.run("strict", **good, any_=nested_value(2900))
        assert text_of(deep) == "1 True 2 ['x']"
        deeper = await bench.run("strict", **{**good, "names": nested_value(2900)})
        assert code_of(deeper) == "INVALID_ARGS"
        # And the keywords that a library would accept without enforcing them.
        with pytest.raises(JsonSchemaError):
            assert_json_schema({"type": "string", "format": "date"})


def test_T30_a_caller_that_has_nearly_used_up_the_stack_gets_a_violation() -> None:
    schema: dict[str, JsonValue] = {"type": "string"}
    value: JsonValue = "x"
    for _ in range(90):
        schema = {"type": "array", "items": schema}
        value = [value]
    checked = Checked(schema)
    assert checked.violations(value, "value") == []
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(len(inspect.stack()) + 60)
        violations = checked.violations(value, "value")
    finally:
        sys.setrecursionlimit(limit)
    assert [(each.path, each.kind) for each in violations] == [("value", "depth")]


_SCALARS = st.sampled_from([None, False, True, 0, 1, 2, 1.0, 1.5, 2**53 - 1, "", "a", "b"])
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)


_LITERALS: dict[str, list[JsonValue]] = {
    "string": ["a", ""],
    "number": [1, 1.5, 2**53 - 1],
    "integer": [0, 1],
}


def _leaf(kind: str) -> st.SearchStrategy[dict[str, JsonValue]]:
    bare: dict[str, JsonValue] = {"type": kind}
    literals = _LITERALS.get(kind)
    if not literals:
        return st.just(bare)
    enums = st.lists(st.sampled_from(literals), min_size=1, max_size=2)
    return st.one_of(
        st.just(bare),
        st.sampled_from(literals).map(lambda literal: {**bare, "const": literal}),
        enums.map(lambda chosen: {**bare, "enum": chosen, "const": chosen[0]}),
        enums.map(lambda chosen: {**bare, "enum": chosen}),
    )


def _node(
    inner: st.SearchStrategy[dict[str, JsonValue]],
) -> st.SearchStrategy[dict[str, JsonValue]]:
    def described(
        properties: dict[str, dict[str, JsonValue]], is_open: bool
    ) -> dict[str, JsonValue]:
        return {
            "type": "object",
            "properties": properties,
            "required": sorted(properties)[:1],
            "additionalProperties": is_open,
        }

    members = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    return st.one_of(
        st.builds(described, members, st.booleans()),
        inner.map(lambda items: {"type": "array", "items": items}),
        st.lists(inner, min_size=2, max_size=3).map(lambda branches: {"oneOf": branches}),
    )


_SCHEMAS = st.recursive(
    st.just({})
    | st.sampled_from(["string", "number", "integer", "boolean", "null"]).flatmap(_leaf),
    _node,
    max_leaves=6,
)


@given(_SCHEMAS, _VALUES)
def test_T24_T29_a_compiled_schema_judges_as_a_walk_along_it_does(
    schema: dict[str, JsonValue], value: JsonValue
) -> None:
    assert_json_schema(schema, "generated")
    found(schema, value)
