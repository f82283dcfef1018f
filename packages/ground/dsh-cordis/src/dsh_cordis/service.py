"""Services: what a plugin offers under a key. Upstream: packages/core/src/service.ts of Cordis."""

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from dsh_cordis._views import Viewable
from dsh_cordis.context import Context


class Service(Viewable):
    """Base of service classes; mount one with `ctx.plugin(MyService, config)`.

    Reading `ctx.<key>` gives a view: the same state, but `self.ctx` is the reader's context.
    Effects and scope through `self.ctx` belong to the reader, services read through it resolve
    as the provider declared them. A view equals its service.

    Attributes:
        key: The service key.
        ctx: The reader's context in a view, the provider's own in the original.

    A start that takes time stands in `async def init(self)`: consumers wait until it returns.
    """

    __slots__ = ()

    key: ClassVar[str]
    ctx: Context

    def __init__(self, ctx: Context, config: object = None) -> None:
        """Claim the key on the context; others see it when the plugin is ACTIVE."""
        self.ctx = ctx
        ctx.provide(type(self).key, self)

    def intercepted(self) -> dict[str, object]:
        """The configuration that the reader's contexts add for this service, nearest wins."""
        merged: dict[str, object] = {}
        for key, config in self.ctx._place.intercepts:
            if key == type(self).key and isinstance(config, Mapping):
                merged = self.merge_config(merged, config)
        return merged

    def merge_config(
        self, outer: Mapping[str, object], inner: Mapping[str, object]
    ) -> dict[str, object]:
        """Join two layers of intercepted configuration; shallow unless overridden."""
        return {**outer, **inner}

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Service) and other.__dict__ is self.__dict__

    @override
    def __hash__(self) -> int:
        return id(self.__dict__)
