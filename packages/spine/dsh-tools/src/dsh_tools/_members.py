"""What an annotated class or function declares: names, resolved annotations, what is required."""

import contextlib
import dataclasses
import inspect
import sys
from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import (
    Annotated,
    Any,
    Final,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from typing_extensions import is_typeddict  # of both modules; typing's knows its own only

from dsh_brand import Json

# `JsonValue` is recursive, hence text at run time; these names are what its text needs to be
# resolved anywhere.
_JSON_NAMES: Final[dict[str, object]] = {
    "JsonValue": Json,
    "Sequence": Sequence,
    "Mapping": Mapping,
}
_JSON_UNION: Final = Union[None, bool, int, float, str, Sequence[Json], Mapping[str, Json]]  # noqa: UP007  # compared with


def is_json_annotation(annotation: object) -> bool:
    """True for `JsonValue` and `Json`, in any of the forms they are resolved to."""
    return annotation is Json or annotation == _JSON_UNION


def resolve_hints(target: Any) -> dict[str, Any]:  # any class or function, any annotations
    """Annotations of a class or function, postponed ones evaluated, with their metadata."""
    names = dict(_JSON_NAMES)
    if inspect.isfunction(target):
        names.update(_closure(target))
    return get_type_hints(target, localns=names, include_extras=True)


def _closure(function: FunctionType) -> dict[str, object]:
    """What the function takes from its surroundings, as far as that has a value yet."""
    found: dict[str, object] = {}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    for name, cell in cells:
        with contextlib.suppress(ValueError):  # a body may use what is assigned after decorating
            found[name] = cell.cell_contents
    return found


def is_model(cls: type) -> bool:
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and issubclass(cls, pydantic.BaseModel)


Row = tuple[str, str, object, bool]


def member_rows(cls: Any) -> list[Row] | None:  # any class
    if is_model(cls):
        return [
            (name, info.alias or name, _model_annotation(info), info.is_required())
            for name, info in cls.model_fields.items()
        ]
    if is_typeddict(cls):
        hints = resolve_hints(cls)
        return [(n, n, _unwrapped(hint), n in cls.__required_keys__) for n, hint in hints.items()]
    if isinstance(cls, type) and issubclass(cls, msgspec.Struct):
        hints = resolve_hints(cls)
        return [
            (f.name, f.encode_name, hints[f.name], f.required) for f in msgspec.structs.fields(cls)
        ]
    if dataclasses.is_dataclass(cls):
        hints = resolve_hints(cls)
        missing = dataclasses.MISSING
        return [
            (f.name, f.name, hints[f.name], f.default is missing and f.default_factory is missing)
            for f in dataclasses.fields(cls)
        ]
    return None


def _unwrapped(hint: object) -> object:
    return get_args(hint)[0] if get_origin(hint) in (NotRequired, Required) else hint


def _model_annotation(info: Any) -> object:  # pydantic's FieldInfo
    # Validators run inside the model; whatever else is there would be a constraint, and is refused
    # later.
    metadata = [item for item in info.metadata if not type(item).__name__.endswith("Validator")]
    if info.description is not None:
        metadata.append(info.description)
    return Annotated[(info.annotation, *metadata)] if metadata else info.annotation
