"""From a type annotation to a JSON schema of the subset, and the typed value both ways.

A codec is made once, when a tool is declared. The value it builds from has been validated against
its schema before, so
building coerces nothing. Pydantic is touched only for annotations that use it.
"""

import enum
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NewType,
    Union,
    get_args,
    get_origin,
)

import msgspec
from typing_extensions import (
    TypeAliasType,
    is_typeddict,  # of both modules; typing's knows its own only
    override,
)

from dsh_brand import JsonObject, JsonValue, json_equal, thaw_json

from ._build import Codec, Field, build_items, build_members
from ._disjoint import Schema, disjoint
from ._fitting import Fits, compile_fits
from ._json import compact, has_json_type
from ._members import is_json_annotation, is_model, member_rows
from .errors import ToolDeclarationError


class _NumberMark:
    """Marks the union of both number types as one schema type."""

    @override
    def __repr__(self) -> str:
        return "Number"


_NUMBER: Final = _NumberMark()
Number = Annotated[int | float, _NUMBER]
"""A number that arrives as it was sent: ``5`` is the `int` 5, ``5.5`` the `float`."""


_SCALARS: Final[dict[object, tuple[str, Callable[[Any], object]]]] = {
    str: ("string", str),
    int: ("integer", int),
    float: ("number", float),
    bool: ("boolean", bool),
    None: ("null", lambda value: None),
    type(None): ("null", lambda value: None),
}


def same(value: object) -> object:
    """What needs no conversion."""
    return value


def make_codec(annotation: object, where: str, *, above: tuple[object, ...] = ()) -> Codec:
    """The codec of an annotation.

    Args:
        annotation: Resolved; `Annotated` descriptions are read by the caller.
        where: Tool and parameter, for messages.
        above: Object types this one is nested in; meeting one again is a recursion.

    Raises:
        ToolDeclarationError: The type is not expressible in the schema subset.
    """
    annotation = bare_type(annotation)
    inner, description, extras = split_annotated(annotation, where)
    if extras:
        return _validated(annotation, make_codec(inner, where, above=above), where)
    if description is not None:
        codec = make_codec(inner, where, above=above)
        return msgspec.structs.replace(codec, schema=described(codec.schema, description))
    if inner is _NUMBER:
        return Codec(schema={"type": "number"}, build=same, dump=same)
    if is_json_annotation(annotation):
        return Codec(schema={}, build=thaw_json, dump=same)
    if isinstance(annotation, type | types.NoneType) or annotation is None:
        scalar = _SCALARS.get(annotation)
        if scalar is not None:
            return Codec(schema={"type": scalar[0]}, build=scalar[1], dump=same)
    return _compound(annotation, where, above)


def bare_type(annotation: Any) -> Any:  # any annotation
    """What a `NewType` or an alias statement stands for."""
    while True:
        if isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif isinstance(annotation, TypeAliasType):
            annotation = annotation.__value__
        else:
            return annotation


def described(schema: Schema, description: str) -> Schema:
    """`schema` with a description, in the place of the key order: behind `type`."""
    head: Schema = {"type": schema["type"]} if "type" in schema else {}
    return {
        **head,
        "description": description,
        **{k: v for k, v in schema.items() if k not in head},
    }


def split_annotated(annotation: object, where: str) -> tuple[object, str | None, list[object]]:
    """The bare type, its description, and metadata that must be run by pydantic.

    Raises:
        ToolDeclarationError: Metadata that would be a schema constraint.
    """
    if get_origin(annotation) is not Annotated:
        return annotation, None, []
    inner, *metadata = get_args(annotation)
    description: str | None = None
    extras: list[object] = []
    for item in metadata:
        if item is _NUMBER:
            inner = item
        elif isinstance(item, str):
            description = item
        elif _is_pydantic(item, "FieldInfo"):
            description = _field_description(item, where) or description
        elif _is_pydantic(item, "Validator"):
            extras.append(item)
        else:
            _refuse_constraint(item, where)
    return inner, description, extras


def _is_pydantic(item: object, suffix: str) -> bool:
    module = type(item).__module__
    return module.startswith("pydantic.") and type(item).__name__.endswith(suffix)


def _field_description(
    info: Any, where: str
) -> str | None:  # pydantic's FieldInfo, not imported here
    for item in info.metadata:
        _refuse_constraint(item, where)
    alias: str | None = info.alias
    if alias is not None:
        raise ToolDeclarationError(f"{where}: aliases are not supported here; rename it {alias!r}")
    description: str | None = info.description
    return description


def _refuse_constraint(item: object, where: str) -> None:
    raise ToolDeclarationError(
        f"{where}: constraint {item!r} cannot be part of the schema; "
        "check it in the body or by a validator"
    )


def _compound(annotation: Any, where: str, above: tuple[object, ...]) -> Codec:  # any annotation
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return _literals([(item, item) for item in arguments], where)
    if origin in (Union, types.UnionType):
        return _union(arguments, where, above)
    if origin in (list, Sequence) and len(arguments) == 1:
        item = make_codec(arguments[0], f"{where}, items", above=above)
        return Codec(
            schema={"type": "array", **({"items": item.schema} if item.schema else {})},
            build=partial(build_items, item),
            dump=lambda value: [item.dump(each) for each in value],
        )
    if annotation is JsonObject or (origin in (dict, Mapping) and _holds_json(arguments)):
        schema: Schema = {"type": "object", "additionalProperties": True}
        return Codec(schema=schema, build=thaw_json, dump=same)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _enum(annotation, where)
    if isinstance(annotation, type):
        fields = _object_fields(annotation, where, above)
        if fields is not None:
            return _object(annotation, fields)
    raise ToolDeclarationError(
        f"{where}: type {annotation!r} is not expressible; use str, int, float, Number, bool, "
        "None, list, Literal, Enum, unions of distinct shapes, nested models, "
        "dict[str, JsonValue] or JsonValue"
    )


def _holds_json(arguments: tuple[object, ...]) -> bool:
    if len(arguments) != 2 or arguments[0] is not str:
        return False
    return is_json_annotation(arguments[1])


def _literals(
    members: list[tuple[Any, object]], where: str, dump: Callable[[Any], object] = same
) -> Codec:
    values = [value for value, _ in members]
    for name in ("string", "boolean", "integer", "number"):
        if all(has_json_type(value, name) for value in values):
            return Codec(
                schema={"type": name, "enum": list(values)},
                build=lambda given: next(m for value, m in members if json_equal(value, given)),
                dump=dump,
            )
    raise ToolDeclarationError(f"{where}: literals {compact(values)} are not of one scalar kind")


def _enum(cls: type[enum.Enum], where: str) -> Codec:
    members: list[tuple[Any, object]] = [(member.value, member) for member in cls]
    return _literals(members, where, dump=lambda value: value.value)


# ---- unions ---------------------------------------------------------------------------------


def _union(arguments: tuple[object, ...], where: str, above: tuple[object, ...]) -> Codec:
    codecs = [make_codec(each, where, above=above) for each in arguments]
    fits = [compile_fits(codec.schema) for codec in codecs]
    for index, one in enumerate(codecs):
        for other in codecs[index + 1 :]:
            if not disjoint(one.schema, other.schema):
                raise ToolDeclarationError(
                    f"{where}: {compact(one.schema)} and {compact(other.schema)} overlap, so a "
                    "value could fit both; use Number for int | float, or objects told apart by "
                    "a Literal member"
                )
    checks = [_type_check(each) for each in arguments]
    flat: list[JsonValue] = []
    for codec in codecs:
        nested = codec.schema.get("oneOf")
        flat.extend(nested if isinstance(nested, list) else [codec.schema])
    return Codec(
        schema={"oneOf": flat},
        build=lambda value: _build_branch(codecs, fits, value),
        dump=lambda value: _dump_branch(codecs, checks, value),
    )


def _build_branch(codecs: list[Codec], fits: list[Fits], value: JsonValue) -> object:
    for codec, fits_branch in zip(codecs, fits, strict=True):
        if fits_branch(value):
            return codec.build(value)
    raise TypeError(f"{compact(value)} fits no branch")  # validation came first


def _type_check(annotation: object) -> Callable[[object], bool]:
    inner, _, _ = split_annotated(bare_type(annotation), "")
    inner = bare_type(inner)
    if inner is _NUMBER:
        inner = float
    origin = get_origin(inner)
    if origin is Literal:
        literals = get_args(inner)
        return lambda value: value in literals
    if inner is None or inner is type(None):
        return lambda value: value is None
    if inner is float:
        return lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    target = dict if is_typeddict(inner) else (origin or inner)
    return lambda value: isinstance(target, type) and isinstance(value, target)


def _dump_branch(
    codecs: list[Codec], checks: list[Callable[[object], bool]], value: object
) -> object:
    for codec, check in zip(codecs, checks, strict=True):
        if check(value):
            return codec.dump(value)
    return value  # output validation says what is wrong with it


# ---- objects --------------------------------------------------------------------------------


def _object(cls: type, fields: list[Field]) -> Codec:
    model = is_model(cls)
    is_dict = is_typeddict(cls)

    def build(value: Mapping[str, Any]) -> object:
        if model:
            return cls.model_validate(thaw_json(value))  # type: ignore[attr-defined]  # a pydantic model, not imported here
        members = build_members(fields, value)
        return members if is_dict else cls(**members)

    def dump(value: Any) -> object:
        if is_dict:
            return {
                key: by_key[key].codec.dump(item) if key in by_key else item
                for key, item in value.items()
            }
        pairs = ((f, getattr(value, f.name)) for f in fields)
        known = {f.key: f.codec.dump(v) for f, v in pairs if f.required or v is not None}
        return {**known, **(value.model_extra or {})} if model else known

    by_key = {f.key: f for f in fields}
    schema = object_schema(fields)
    schema["additionalProperties"] = model and cls.model_config.get("extra") == "allow"  # type: ignore[attr-defined]  # a pydantic model
    return Codec(schema=schema, build=build, dump=dump)


def object_schema(fields: list[Field]) -> Schema:
    """An object schema with `fields` in order; `required` is left out when empty."""
    properties: Schema = {f.key: f.codec.schema for f in fields}
    schema: Schema = {"type": "object", "properties": properties}
    required: list[JsonValue] = [f.key for f in fields if f.required]
    if required:
        schema["required"] = required
    return schema


def _object_fields(cls: type, where: str, above: tuple[object, ...]) -> list[Field] | None:
    rows = member_rows(cls)
    if rows is None:
        return None
    if cls in above:
        raise ToolDeclarationError(
            f"{where}: {cls.__name__} contains itself; schemas have no references"
        )
    fields = [
        make_field(name, key, annotation, required, f"{where}.{key}", above=(*above, cls))
        for name, key, annotation, required in rows
    ]
    keys = [f.key for f in fields]
    if len(set(keys)) != len(keys):
        raise ToolDeclarationError(f"{where}: two members of {cls.__name__} have one JSON name")
    return fields


def make_field(
    name: str,
    key: str,
    annotation: object,
    required: bool,
    where: str,
    *,
    description: str | None = None,
    above: tuple[object, ...] = (),
) -> Field:
    """A member; ``X | None`` that is not required is an optional X, without null."""
    annotation = bare_type(annotation)
    inner, own, extras = split_annotated(annotation, where)
    inner = bare_type(inner)
    bare = inner if not extras else annotation
    # "Any JSON" is a union that holds None, too, and is meant whole.
    stripped = not (required or extras or is_json_annotation(inner))
    if stripped and get_origin(inner) in (Union, types.UnionType):
        rest = tuple(a for a in get_args(inner) if a is not type(None))
        bare = Union[rest]  # noqa: UP007  # built from a tuple
    codec = make_codec(Number if inner is _NUMBER else bare, where, above=above)
    text = own or description
    if text:
        codec = msgspec.structs.replace(codec, schema=described(codec.schema, text))
    return Field(name=name, key=key, codec=codec, required=required)


def _validated(annotation: Any, codec: Codec, where: str) -> Codec:  # any annotation
    """A codec whose value also runs through the pydantic validators of its annotation."""
    import pydantic

    try:
        adapter: pydantic.TypeAdapter[object] = pydantic.TypeAdapter(annotation)
    except Exception as error:
        raise ToolDeclarationError(f"{where}: {error}") from error

    def build(value: JsonValue) -> object:
        return adapter.validate_python(thaw_json(value))

    return msgspec.structs.replace(codec, build=build)
