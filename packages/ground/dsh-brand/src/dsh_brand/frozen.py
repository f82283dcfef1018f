"""JSON containers that refuse changes and still are `dict` and `list` for encoders."""

from collections.abc import Callable
from typing import Any, NoReturn, Self, TypeVar

from typing_extensions import override

V = TypeVar("V")


def _refuse(self: object, *_: object, **__: object) -> NoReturn:
    raise TypeError(f"{type(self).__name__} is frozen: build a changed copy from thaw_json(value)")


class FrozenDict(dict[str, V]):
    """A JSON object that refuses changes; made by `freeze_json`, deeply frozen by construction."""

    __slots__ = ()

    __init__ = _refuse  # only freeze_json may fill one, else depth is not guaranteed
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    @override
    def copy(self) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @override
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[dict[str, V]]]:  # pickle's own protocol
        return _rebuilt_dict, (dict(self),)


class FrozenList(list[V]):
    """A JSON array that refuses changes; made by `freeze_json`, deeply frozen by construction."""

    __slots__ = ()

    __init__ = _refuse  # only freeze_json may fill one, else depth is not guaranteed
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = clear = extend = insert = pop = remove = reverse = sort = _refuse

    @override
    def copy(self) -> Self:
        return self

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @override
    def __reduce__(self) -> tuple[Callable[..., Any], tuple[list[V]]]:  # pickle's own protocol
        return _rebuilt_list, (list(self),)


def _rebuilt_dict(value: dict[str, V]) -> FrozenDict[V]:
    # Unpickled members are frozen already: each rebuilt itself the same way.
    frozen: FrozenDict[V] = FrozenDict.__new__(FrozenDict)
    dict.update(frozen, value)
    return frozen


def _rebuilt_list(value: list[V]) -> FrozenList[V]:
    frozen: FrozenList[V] = FrozenList.__new__(FrozenList)
    list.extend(frozen, value)
    return frozen
