"""The subset of JSON Schema that tools may use, and the check that a schema lies in it.

Upstream: packages/tools/tools/src/json-schema.ts. Whatever is outside is refused, so that no
keyword is ever accepted
without being enforced by `validation`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from dsh_brand import JsonValue, NotJsonError, freeze_json, json_equal

from ._json import TYPES, compact, has_json_type, member_path
from .errors import JsonSchemaError

_SCALARS: Final = frozenset(TYPES) - {"object", "array"}
_ANNOTATIONS: Final = frozenset({"description", "title", "default", "examples"})
_PLACES: Final[dict[str, frozenset[str]]] = {
    "properties": frozenset({"object"}),
    "required": frozenset({"object"}),
    "additionalProperties": frozenset({"object"}),
    "items": frozenset({"array"}),
    "enum": _SCALARS,
    "const": _SCALARS,
}


def assert_json_schema(schema: object, label: str = "the schema") -> None:
    """Check that `schema` lies in the subset.

    Args:
        schema: Any value; what is no lossless JSON is refused too.
        label: Whose schema it is, for the message.

    Raises:
        JsonSchemaError: `violations` lists every offending place.
    """
    problems = list(_problems(schema))
    if problems:
        raise JsonSchemaError(label, problems)


def assert_object_json_schema(schema: object, label: str = "the schema") -> None:
    """Check that `schema` lies in the subset and describes an object.

    Raises:
        JsonSchemaError: As for `assert_json_schema`, or the root is no object.
    """
    problems = list(_problems(schema))
    if isinstance(schema, Mapping) and schema.get("type") != "object":
        problems.append("<root>: the root must have type 'object'")
    if problems:
        raise JsonSchemaError(label, problems)


def _problems(schema: object) -> Iterator[str]:
    try:
        freeze_json(schema, tuples=False, surrogates=False)
    except NotJsonError as error:
        yield f"{error.path or '<root>'}: {error.message}"
        return
    # Iterative: a schema may be nested deeper than the interpreter's stack.
    stack: list[tuple[str, object]] = [("", schema)]
    while stack:
        path, node = stack.pop()
        if not isinstance(node, Mapping):
            yield f"{path or '<root>'}: a schema must be an object, not {compact(node)}"
            continue
        yield from (f"{path or '<root>'}: {problem}" for problem in _node_problems(node))
        stack.extend(reversed(list(_children(path, node))))


def _children(path: str, node: Mapping[str, JsonValue]) -> Iterator[tuple[str, object]]:
    properties = node.get("properties")
    if isinstance(properties, Mapping):
        for name, child in properties.items():
            yield member_path(path, name), child
    if "items" in node:
        yield f"{path}[]", node["items"]
    branches = node.get("oneOf")
    if isinstance(branches, list):
        for index, child in enumerate(branches):
            yield f"{path}<oneOf {index}>", child


def _node_problems(node: Mapping[str, JsonValue]) -> Iterator[str]:
    kind = node.get("type")
    if "type" in node and kind not in TYPES:
        yield f"'type' must be one of {', '.join(TYPES)}, not {compact(kind)}"
    for keyword in node:
        if keyword in _ANNOTATIONS or keyword in {"type", "oneOf"}:
            continue
        places = _PLACES.get(keyword)
        if places is None:
            yield f"keyword {compact(keyword)} is not supported"
        elif "oneOf" in node:
            yield f"{keyword!r} cannot stand beside 'oneOf'"
        elif not isinstance(kind, str) or kind not in places:
            yield f"{keyword!r} belongs on {' or '.join(sorted(places))} only"
    for check in _KEYWORD_CHECKS:
        yield from check(node)


def _annotation_problems(node: Mapping[str, JsonValue]) -> Iterator[str]:
    for keyword in ("description", "title"):
        if keyword in node and not isinstance(node[keyword], str):
            yield f"{keyword!r} must be a string"


def _union_problems(node: Mapping[str, JsonValue]) -> Iterator[str]:
    if "oneOf" not in node:
        return
    branches = node["oneOf"]
    if not isinstance(branches, list) or len(branches) < 2:
        yield "'oneOf' must be a list of at least two schemas"
    if "type" in node:
        yield "'type' cannot stand beside 'oneOf'"


def _object_problems(node: Mapping[str, JsonValue]) -> Iterator[str]:
    properties = node.get("properties", {})
    if not isinstance(properties, Mapping):
        yield "'properties' must be an object"
        properties = {}
    if "additionalProperties" in node and not isinstance(node["additionalProperties"], bool):
        yield "'additionalProperties' must be true or false"
    required = node.get("required", [])
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        yield "'required' must be a list of names"
        return
    for name in required:
        if name not in properties:
            yield f"required name {compact(name)} is not declared in 'properties'"


def _literal_problems(node: Mapping[str, JsonValue]) -> Iterator[str]:
    kind = node.get("type")
    literals = node.get("enum", [])
    if "enum" in node and (not isinstance(literals, list) or not literals):
        yield "'enum' must be a list that is not empty"
        literals = []
    assert isinstance(literals, list)
    given = [*literals, node["const"]] if "const" in node else literals
    if isinstance(kind, str) and kind in _SCALARS:
        for literal in given:
            if not has_json_type(literal, kind):
                yield f"literal {compact(literal)} is no {kind}"
    if literals and "const" in node and not any(json_equal(v, node["const"]) for v in literals):
        yield f"'const' {compact(node['const'])} is not in 'enum'"


_KEYWORD_CHECKS: Final[tuple[Callable[[Mapping[str, JsonValue]], Iterator[str]], ...]] = (
    _annotation_problems,
    _union_problems,
    _object_problems,
    _literal_problems,
)
