"""Views: one service as seen through one context.

A view shares the `__dict__` of its service, so all views have one state; only the context
differs, and stands in a slot.
"""

from typing import ClassVar

from typing_extensions import override


class Viewable:
    """Base of what is handed out as views."""

    __slots__ = ("__dict__", "__weakref__", "ctx")
    key: ClassVar[str]
    ctx: object

    async def init(self) -> None:
        """Do the part of the start that takes time; consumers wait until it returns."""

    @override
    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__basicsize__ != Viewable.__basicsize__ or cls.__itemsize__:
            raise TypeError(
                f"service class {cls.__name__!r} must keep its state in __dict__; drop its "
                "__slots__ or its built-in base, whose state a view could not share"
            )


def view_of(service: Viewable, ctx: object) -> Viewable:
    """The service as seen through a context."""
    view: Viewable = object.__new__(type(service))
    view.__dict__ = service.__dict__
    view.ctx = ctx
    return view
