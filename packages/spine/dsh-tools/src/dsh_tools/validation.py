"""Validation of JSON values against the schema subset.

Upstream: packages/tools/tools/src/json-schema.ts. Nothing is coerced, no default is filled in, and
every violation is reported, in an order that depends on schema and value only. The subset has no
references, so a value is walked no deeper than its schema is.
"""

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from dsh_brand import JsonValue, json_equal

from ._fitting import MAX_DEPTH, compile_fits
from ._json import compact, has_json_type, member_path

ViolationKind = Literal["missing", "type", "enum", "const", "additional", "one-of", "depth"]


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong with a value."""

    path: str
    """Like ``todos[0].status``; the root has its label."""
    kind: ViolationKind
    expected: str
    text: str
    """For the model: names the path in quotes and what was expected there."""


def validate(schema: Mapping[str, JsonValue], value: JsonValue, *, label: str) -> list[Violation]:
    """Everything that is wrong with `value`; empty when it fits.

    Args:
        schema: In the subset (`assert_json_schema`).
        value: Any JSON value.
        label: Path of the root: ``arguments`` or ``value``.
    """
    try:
        return list(_node(schema, value, _Place("", label, 0)))
    except RecursionError:
        # Only where the caller has nearly used up the stack himself.
        return [_depth(_Place("", label, 0))]


class Checked:
    """A schema that many values are held against."""

    __slots__ = ("_fits", "_schema")

    def __init__(self, schema: Mapping[str, JsonValue]) -> None:
        self._schema = schema
        self._fits = compile_fits(schema)

    def violations(self, value: JsonValue, label: str) -> list[Violation]:
        """As `validate` with this schema."""
        try:
            if self._fits(value):
                return []
        except RecursionError:
            pass  # `validate` says so
        return validate(self._schema, value, label=label)


class _Place(msgspec.Struct, frozen=True):
    path: str
    label: str
    depth: int

    @property
    def name(self) -> str:
        return self.path or self.label

    def down(self, path: str) -> "_Place":
        return _Place(path, self.label, self.depth + 1)


def _node(schema: Mapping[str, JsonValue], value: JsonValue, at: _Place) -> Iterator[Violation]:
    kind = schema.get("type")
    branches = schema.get("oneOf")
    if kind is None and branches is None:
        return
    if at.depth > MAX_DEPTH:
        yield _depth(at)
    elif isinstance(branches, list):
        yield from _one_of(branches, value, at)
    elif not has_json_type(value, str(kind)):
        yield _violation(at, "type", f"{_article(str(kind))}, not {_shown(value)}")
    elif isinstance(value, Mapping):
        yield from _object(schema, value, at)
    elif isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, Mapping):
            for index, item in enumerate(value):
                yield from _node(items, item, at.down(f"{at.path}[{index}]"))
    else:
        yield from _scalar(schema, value, at)


def _one_of(branches: list[JsonValue], value: JsonValue, at: _Place) -> Iterator[Violation]:
    # A branch is a schema for this very value, but its depth counts: unions may nest in unions.
    inner = _Place(at.path, at.label, at.depth + 1)
    attempts = [list(_node(b, value, inner)) for b in branches if isinstance(b, Mapping)]
    too_deep = next((v for attempt in attempts for v in attempt if v.kind == "depth"), None)
    matches = sum(not attempt for attempt in attempts)
    if too_deep is not None:
        yield too_deep
    elif matches != 1:
        yield _violation(
            at,
            "one-of",
            f"a value that fits exactly one of {len(branches)} alternatives; "
            f"{_shown(value)} fits {matches}",
        )


def _object(
    schema: Mapping[str, JsonValue], value: Mapping[str, JsonValue], at: _Place
) -> Iterator[Violation]:
    required = schema.get("required", ())
    properties = schema.get("properties", {})
    assert isinstance(required, list | tuple)
    assert isinstance(properties, Mapping)
    for name in dict.fromkeys(required):
        if name not in value:
            place = at.down(member_path(at.path, name))
            yield Violation(
                path=place.name,
                kind="missing",
                expected="a value",
                text=f"'{place.name}' is required and missing",
            )
    for name, child in properties.items():
        if name in value and isinstance(child, Mapping):
            yield from _node(child, value[name], at.down(member_path(at.path, name)))
    if schema.get("additionalProperties") is False:
        for name in value:
            if name not in properties:
                known = ", ".join(properties) or "none"
                place = at.down(member_path(at.path, compact(name) if len(name) > 80 else name))
                yield Violation(
                    path=place.name,
                    kind="additional",
                    expected="no such property",
                    text=f"'{place.name}' is not a known property; known are: {known}",
                )


def _scalar(schema: Mapping[str, JsonValue], value: JsonValue, at: _Place) -> Iterator[Violation]:
    literals = schema.get("enum")
    if isinstance(literals, list) and not any(json_equal(value, item) for item in literals):
        shown = ", ".join(compact(item) for item in literals)
        yield _violation(at, "enum", f"one of {shown}, not {_shown(value)}")
    elif "const" in schema and not json_equal(value, schema["const"]):
        yield _violation(at, "const", f"{compact(schema['const'])}, not {_shown(value)}")


def _depth(at: _Place) -> Violation:
    return _violation(at, "depth", f"a value nested at most {MAX_DEPTH} levels deep")


def _violation(at: _Place, kind: ViolationKind, expected: str) -> Violation:
    return Violation(
        path=at.name, kind=kind, expected=expected, text=f"'{at.name}': expected {expected}"
    )


def _article(kind: str) -> str:
    if kind == "null":
        return kind
    return f"an {kind}" if kind[0] in "aio" else f"a {kind}"


def _shown(value: JsonValue) -> str:
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    return compact(value)
