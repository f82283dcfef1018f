"""Open wire types: frozen structs that keep what they do not know.

A `Wire` struct is JSON with camelCase keys. Fields that its class does not declare are kept in
`extra` and written back; a value whose tag nobody registered becomes its union's opaque class and
is written back whole. Reading and writing go through the C codec of msgspec; only values that hold
something unknown, half a surrogate pair or an odd number take the exact path in Python.
"""

import types
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from functools import cache
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    TypeAlias,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec
from typing_extensions import override

from dsh_brand import _jsontext
from dsh_brand.frozen import FrozenDict
from dsh_brand.json import (
    MAX_SAFE_INT,
    JsonValue,
    NotJsonError,
    decode_json,
    freeze_json,
    freeze_object,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S", bound=msgspec.Struct)

_EXTRA: Final = "$extra$"
_EXTRA_KEY: Final = b'"$extra$":'
_DOLLAR: Final = ord("$")
"""In the key: to look for one number is much cheaper than to look for bytes."""

if TYPE_CHECKING:  # msgspec reads the run-time classes below, a type checker these aliases
    Json: TypeAlias = JsonValue
    JsonObject: TypeAlias = Mapping[str, JsonValue]
else:

    class _AnyJson(type):
        def __instancecheck__(cls, value: object) -> bool:
            return (
                True  # what the decoder's hook returns for a `Json` field is any frozen JSON value
            )

    class Json(metaclass=_AnyJson):
        """Field type: any JSON value, frozen when it is decoded."""

    JsonObject = FrozenDict


class Wire(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """Base of everything that stands in a log or goes over a wire."""

    extra: JsonObject | None = msgspec.field(default=None, name=_EXTRA)
    """JSON fields that this class does not declare, written back unchanged."""


class OpenUnion:
    """A sum type that others extend at import time by registering a class for a tag.

    The members are `Wire` structs that share a base class with a ``tag_field``. The `opaque`
    member, declared with ``tag=False``, holds in its `extra` the whole JSON object of a tag that
    nobody registered.
    """

    def __init__(self, base: type[Wire], opaque: type[Wire]) -> None:
        self.base = base
        self.opaque = opaque
        field = base.__struct_config__.tag_field
        if field is None:
            raise TypeError(f"{base.__qualname__} declares no tag_field")
        self.tag_field: str = field
        self._members: dict[str, type[Wire]] = {}
        _UNIONS[base] = self

    def register(self, cls: type[S]) -> type[S]:
        """Add a member; usable as decorator.

        A class with the same tag is replaced: a module may be imported again.

        Raises:
            TypeError: `cls` is no tagged subclass of the union's base.
        """
        tag = cls.__struct_config__.tag
        if not issubclass(cls, self.base) or not isinstance(tag, str):
            raise TypeError(f"{cls.__qualname__} is no tagged subclass of {self.base.__qualname__}")
        self._members[tag] = cast("type[Wire]", cls)
        return cls

    def known(self, tag: str) -> bool:
        """True if a class is registered for `tag`."""
        return tag in self._members

    def member(self, tag: object) -> type[Wire]:
        """The class for `tag`, or the opaque one."""
        return self._members.get(tag, self.opaque) if isinstance(tag, str) else self.opaque


class UnreadArray(Sequence[T_co]):
    """A frozen JSON array that stays the text it was read from until somebody looks into it.

    For long parts of a log that few readers need. It equals a tuple of its items, and is written
    back as it was.
    """

    __slots__ = ("_items", "_text")

    def __init__(self, text: bytes) -> None:
        """Keep `text`, an array that is sound JSON."""
        self._text = text
        self._items: tuple[T_co, ...] | None = None

    @property
    def text(self) -> bytes:
        """The array as it was read."""
        return self._text

    @property
    def items(self) -> tuple[T_co, ...]:
        """What is in it; read once."""
        if self._items is None:
            self._items = self._read(self._text)
        return self._items

    def to_json(self) -> JsonValue:
        """What is in it as builtins: as it was read, where JSON can hold that."""
        try:
            return freeze_json(decode_json(self._text), loading=True)
        except NotJsonError:  # a number that no double holds
            return [to_json(item) for item in self.items]

    @abstractmethod
    def _read(self, text: bytes) -> tuple[T_co, ...]:
        """Read the items; must not raise."""

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T_co, ...]: ...
    @override
    def __getitem__(self, index: int | slice) -> T_co | tuple[T_co, ...]:
        return self.items[index]

    @override
    def __len__(self) -> int:
        return len(self.items)

    @override
    def __eq__(self, other: object) -> bool:
        if isinstance(other, UnreadArray):
            return self._text == other._text or self.items == other.items
        return self.items == other if isinstance(other, tuple) else NotImplemented

    @override
    def __hash__(self) -> int:
        return hash(self.items)

    @override
    def __repr__(self) -> str:
        return repr(self.items)


_UNIONS: Final[dict[type, OpenUnion]] = {}
_JSON: Final[object] = Json  # the run-time class; to a type checker `Json` is an alias


def to_json(value: object) -> JsonValue:
    """Plain builtins of a struct, a sequence or a JSON value, with kept fields merged back."""
    if isinstance(value, msgspec.Struct):
        return _struct_to_json(value)
    if isinstance(value, tuple) or type(value) is list:
        return [to_json(item) for item in value]
    if type(value) is dict:
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_SAFE_INT:
        return int(value)
    if isinstance(value, UnreadArray):
        return value.to_json()
    return cast("JsonValue", value)


def _struct_to_json(value: msgspec.Struct) -> dict[str, JsonValue]:
    result: dict[str, JsonValue] = {}
    config = value.__struct_config__
    if config.tag_field is not None and config.tag is not None:
        result[config.tag_field] = cast("JsonValue", config.tag)
    for name, key, default in _columns(type(value)):
        item = getattr(value, name)
        if item is msgspec.UNSET or (config.omit_defaults and _same(item, default)):
            continue
        if key == _EXTRA:
            result.update(item)
        else:
            result[key] = to_json(item)
    return result


def _same(item: object, default: object) -> bool:
    return item is default or (type(item) is type(default) and item == default)


@cache
def _columns(cls: type[msgspec.Struct]) -> tuple[tuple[str, str, object], ...]:
    rows = (
        (field.name, field.encode_name, () if field.default_factory is tuple else field.default)
        for field in msgspec.structs.fields(cls)
    )
    # Kept fields go last; where they stood among the others carries no meaning.
    return tuple(sorted(rows, key=lambda row: row[1] == _EXTRA))


def from_json(kind: type[T], value: object, path: str = "") -> T:
    """Build a struct (or any annotated type) from builtins; what is unknown is kept.

    Args:
        kind: A `Wire` class, a union of them, or any type msgspec converts to.
        value: Builtins as `decode_json` gives them.
        path: Where `value` stands, for the message of an error.

    Raises:
        ValueError: A wrong shape; the message names the path.
    """
    return cast("T", _convert(kind, value, path or "$"))


def _convert(kind: Any, value: object, path: str) -> object:  # any annotation form
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _convert_union(get_args(kind), value, path)
    if origin is tuple and get_args(kind)[1:] == (Ellipsis,):
        if not isinstance(value, list | tuple):
            raise ValueError(f"an array was expected, got {type(value).__name__} - at `{path}`")
        item_kind = get_args(kind)[0]
        return tuple(_convert(item_kind, item, f"{path}[{i}]") for i, item in enumerate(value))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _convert_struct(_member_for(kind, value), value, path)
    return _convert_plain(kind, value, path)


def _convert_plain(kind: Any, value: object, path: str) -> object:  # any annotation form
    try:
        return msgspec.convert(value, kind, dec_hook=_decode_hook)
    except msgspec.ValidationError as error:
        raise ValueError(f"{str(error).split(' - at ')[0]} - at `{path}`") from None


def _convert_union(kinds: tuple[Any, ...], value: object, path: str) -> object:  # annotation forms
    if value is None and type(None) in kinds:
        return None
    structs = [k for k in kinds if isinstance(k, type) and issubclass(k, msgspec.Struct)]
    if structs and isinstance(value, Mapping):
        if len(structs) == 1:
            return _convert(structs[0], value, path)
        return _convert_struct(_member_of(structs, value, path), value, path)
    others = tuple(
        k for k in kinds if k not in structs and k not in (type(None), msgspec.UnsetType)
    )
    if len(others) == 1:
        return _convert(others[0], value, path)
    return _convert_plain(Union[kinds], value, path)  # noqa: UP007  # built from a tuple


def _member_for(kind: type[msgspec.Struct], value: object) -> type[msgspec.Struct]:
    """The union's member for the value's tag if `kind` is a union's base, else `kind` itself."""
    union = _UNIONS.get(kind)
    if union is None or not isinstance(value, Mapping):
        return kind
    return union.member(value.get(union.tag_field))


def _member_of(
    structs: list[type[msgspec.Struct]], value: Mapping[str, object], path: str
) -> type[msgspec.Struct]:
    for base in structs[0].__mro__:
        if (union := _UNIONS.get(base)) is not None:
            return union.member(value.get(union.tag_field))
    for struct in structs:
        config = struct.__struct_config__
        if config.tag_field is not None and value.get(config.tag_field) == config.tag:
            return struct
    tags = ", ".join(repr(struct.__struct_config__.tag) for struct in structs)
    raise ValueError(f"none of the tags {tags} - at `{path}`")


def _convert_struct(cls: type[msgspec.Struct], value: object, path: str) -> msgspec.Struct:
    if not isinstance(value, Mapping):
        raise ValueError(f"an object was expected, got {type(value).__name__} - at `{path}`")
    plan = _plan(cls)
    config = cls.__struct_config__
    arguments: dict[str, object] = {}
    extra: dict[str, object] = {}
    for key, item in value.items():
        if key in plan:
            name, kind = plan[key]
            arguments[name] = _convert(kind, item, f"{path}.{key}")
        elif key == config.tag_field and config.tag is not None:
            if item != config.tag:
                raise ValueError(f"{config.tag!r} was expected, got {item!r} - at `{path}.{key}`")
        else:
            extra[key] = item
    if extra and issubclass(cls, Wire):
        arguments["extra"] = freeze_object(extra, loading=True)
    try:
        return cls(**arguments)
    except TypeError as error:
        missing = [
            key for key, (name, _) in plan.items() if name not in arguments and _required(cls, name)
        ]
        detail = f"missing {', '.join(repr(key) for key in missing)}" if missing else str(error)
        raise ValueError(f"{detail} - at `{path}`") from None


@cache
def _plan(cls: type[msgspec.Struct]) -> dict[str, tuple[str, Any]]:  # annotation forms
    hints = get_type_hints(cls)
    return {
        field.encode_name: (field.name, hints[field.name])
        for field in msgspec.structs.fields(cls)
        if field.encode_name != _EXTRA
    }


def _required(cls: type[msgspec.Struct], name: str) -> bool:
    return any(field.name == name and field.required for field in msgspec.structs.fields(cls))


def _decode_hook(kind: type, value: object) -> object:
    if kind is _JSON:
        return freeze_json(value, loading=True)
    if kind is FrozenDict:
        return freeze_object(cast("Mapping[str, object]", value), loading=True)
    raise NotImplementedError(f"fields of type {kind!r} are not decoded: use Json or JsonObject")


def _encode_hook(value: object) -> object:
    if isinstance(value, UnreadArray):
        return msgspec.Raw(value.text)
    raise NotImplementedError(f"a value of type {type(value).__qualname__} is no JSON")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_encode_hook)


def encode(value: object) -> bytes:
    """Compact JSON bytes of a struct, a sequence of structs or a frozen JSON value.

    Kept fields are merged back, numbers are written as JavaScript prints them, half pairs as
    escapes.
    """
    try:
        text = _ENCODER.encode(value)
    except (UnicodeEncodeError, RecursionError):
        return _jsontext.write_exact(to_json(value))
    if (_DOLLAR in text and _EXTRA_KEY in text) or _jsontext.needs_care(text):
        return _jsontext.write_exact(to_json(value))
    return text


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:  # one decoder for each annotation form
    return msgspec.json.Decoder(kind, dec_hook=_decode_hook)


def decode(kind: type[T], data: bytes) -> T:
    """Read JSON bytes into a `Wire` class or a union; what is unknown is kept.

    Raises:
        ValueError: Not JSON, or a wrong shape; the message tells where.
    """
    if _DOLLAR not in data or _EXTRA_KEY not in data:
        try:
            return cast("T", _decoder(cast("Hashable", kind)).decode(data))
        except (msgspec.DecodeError, RecursionError):
            pass  # the tolerant path below decides, and words the error
    return from_json(kind, decode_json(data))


def replace(value: S, **changes: object) -> S:
    """A copy with some attributes changed; kept fields go along."""
    return msgspec.structs.replace(value, **changes)


__all__ = [
    "Json",
    "JsonObject",
    "OpenUnion",
    "UnreadArray",
    "Wire",
    "decode",
    "encode",
    "from_json",
    "replace",
    "to_json",
]
