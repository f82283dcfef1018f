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
        return _refreeze, (dict(self),)


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
        return _refreeze, (list(self),)


def _refreeze(value: object) -> object:
    # Imported late: json builds on this module, and only unpickling comes back this way.
    from dsh_brand.json import freeze_json

    return freeze_json(value)
