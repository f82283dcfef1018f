"""Which schemas are accepted."""

import pytest

from dsh_tools import JsonSchemaError, assert_json_schema, assert_object_json_schema

GOOD = {
    "type": "object",
    "description": "d",
    "properties": {
        "a": {"type": "string", "enum": ["x", "y"]},
        "b": {"oneOf": [{"type": "null"}, {"type": "array", "items": {"type": "integer"}}]},
        "c": {},
        "d": {"type": "number", "const": 1, "enum": [1, 2]},
        "title": {"title": "t", "default": {"x": 1}, "examples": [1]},
    },
    "required": ["a"],
    "additionalProperties": False,
}


def problems(schema: object) -> list[str]:
    with pytest.raises(JsonSchemaError) as caught:
        assert_json_schema(schema)
    assert caught.value.code == "UNSUPPORTED_SCHEMA"
    assert all(problem in caught.value.message for problem in caught.value.violations)
    return list(caught.value.violations)


def test_T20_T22_the_subset_is_accepted() -> None:
    assert_json_schema(GOOD)
    assert_json_schema({})
    assert_json_schema({"type": "string"})


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": ["string", "null"]}, id="list of types"),
        pytest.param({"oneOf": [{}]}, id="one branch"),
        pytest.param({"oneOf": [{}, {}], "type": "string"}, id="type beside oneOf"),
        pytest.param({"oneOf": [{}, {}], "enum": [1]}, id="enum beside oneOf"),
        pytest.param({"properties": {}}, id="properties without object"),
        pytest.param({"type": "string", "items": {}}, id="items on string"),
        pytest.param({"type": "object", "enum": [{}]}, id="enum on object"),
        pytest.param({"type": "string", "enum": []}, id="empty enum"),
        pytest.param({"type": "integer", "enum": [True]}, id="boolean is no integer"),
        pytest.param({"type": "string", "enum": ["a"], "const": "b"}, id="const outside enum"),
        pytest.param({"type": "object", "required": ["a"]}, id="required is undeclared"),
        pytest.param({"type": "object", "additionalProperties": {}}, id="typed additional"),
        pytest.param({"type": "string", "description": 1}, id="description"),
        pytest.param({"type": "string", "default": {1, 2}}, id="default is no JSON"),
        pytest.param(True, id="boolean schema"),
        pytest.param(None, id="nothing"),
    ],
)
def test_T20_T21_placement_is_checked(schema: object) -> None:
    assert len(problems(schema)) == 1


@pytest.mark.parametrize(
    "keyword",
    ["$ref", "$defs", "anyOf", "allOf", "not", "pattern", "format", "minimum", "prefixItems"],
)
def test_T23_no_keyword_is_accepted_without_being_enforced(keyword: str) -> None:
    assert keyword in problems({"type": "string", keyword: 1})[0]


def test_T23_every_offending_place_is_listed() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "x"}, "b": {"type": "array", "items": {"minimum": 1}}},
        "required": ["c"],
    }
    assert [problem.split(":")[0] for problem in problems(schema)] == ["<root>", "a", "b[]"]


def test_T23_depth_does_not_overflow_and_cycles_are_refused() -> None:
    deep: dict[str, object] = {}
    for _ in range(3000):
        deep = {"type": "array", "items": deep}
    assert_json_schema(deep)
    cyclic: dict[str, object] = {"type": "array"}
    cyclic["items"] = cyclic
    assert "cyclic" in problems(cyclic)[0]


def test_T22_object_roots_can_be_demanded() -> None:
    assert_object_json_schema(GOOD)
    with pytest.raises(JsonSchemaError, match="object"):
        assert_object_json_schema({"type": "string"})
