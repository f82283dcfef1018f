"""An adapter as a plugin: its registration follows its configuration (L153)."""

from collections.abc import Mapping
from typing import Protocol, Self, TypeVar

from dsh_cordis import Context, InternalUpdate, Next
from dsh_llm import LlmService, RetryPolicy, resolve_retry_policy

from .adapter import HttpAdapter, P, R

C = TypeVar("C", covariant=True)


class Config(Protocol[C]):
    """Settings of an adapter's plugin."""

    @property
    def providers(self) -> Mapping[str, C]:
        """A profile for each route."""
        ...

    @classmethod
    def model_validate(cls, obj: object) -> Self:
        """Read settings as they were written."""
        ...


def serve(
    ctx: Context,
    llm: LlmService,
    adapter: HttpAdapter[R, P],
    *,
    namespace: str,
    config: type[Config[P]],
) -> None:
    """Register the adapter's routes and its discovery, for as long as the plugin lives.

    A later configuration is taken over in place: routes change in one step, calls that run keep
    theirs, and the registration is touched only where routes or retry policies changed. One that
    cannot be used raises from the update and leaves everything as it was.

    Args:
        ctx: The plugin's context.
        llm: The service, read through that context.
        adapter: What serves; it is closed with the plugin.
        namespace: The settings namespace for which models are discovered.
        config: The plugin's settings, as which a later configuration is read.
    """
    ctx.effect(lambda: adapter.aclose, label="connections")
    llm.register_model_discovery(namespace, adapter.discover)
    handle = llm.register_adapter(adapter.providers, adapter) if adapter.providers else None

    async def take_over(event: InternalUpdate, rest: Next[None]) -> None:
        nonlocal handle
        before = adapter.routes
        registered = _registered(adapter)
        adapter.configure(config.model_validate(event.config or {}).providers)
        if _registered(adapter) == registered:
            return
        try:
            if handle is not None:
                handle.replace(adapter.providers)
            elif adapter.providers:
                handle = llm.register_adapter(adapter.providers, adapter)
        except BaseException:
            adapter.restore(before)
            raise

    ctx.on(InternalUpdate, take_over)


def _registered(adapter: HttpAdapter[R, P]) -> Mapping[str, RetryPolicy]:
    """What the registration knows of the routes; their order is no part of it."""
    return {name: resolve_retry_policy(route.retry) for name, route in adapter.routes.items()}
