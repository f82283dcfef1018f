"""An adapter as a plugin: its registration follows its configuration (L153)."""

from collections.abc import Mapping
from typing import Generic, Protocol, Self, TypeVar

from dsh_cordis import Context, InternalUpdate, Next
from dsh_llm import (
    AdapterHandle,
    DirectoryHandle,
    LlmConfigurableProvider,
    LlmService,
    RetryPolicy,
    resolve_retry_policy,
)

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
    cannot be used raises from the update and leaves everything as it was. Each route stands in the
    directory of configurable providers, with the place of its settings.

    Args:
        ctx: The plugin's context.
        llm: The service, read through that context.
        adapter: What serves; it is closed with the plugin.
        namespace: The settings namespace for which models are discovered.
        config: The plugin's settings, as which a later configuration is read.
    """
    ctx.effect(lambda: adapter.aclose, label="connections")
    llm.register_model_discovery(namespace, adapter.discover)
    registration = _Registration(llm, adapter, namespace)
    registration.follow()

    async def take_over(event: InternalUpdate, rest: Next[None]) -> None:
        before = adapter.routes
        adapter.configure(config.model_validate(event.config or {}).providers)
        try:
            registration.follow()
        except BaseException:
            adapter.restore(before)
            registration.follow()
            raise

    ctx.on(InternalUpdate, take_over)


class _Registration(Generic[R, P]):
    """What the service knows of an adapter: its routes, and where they are set up."""

    def __init__(self, llm: LlmService, adapter: HttpAdapter[R, P], namespace: str) -> None:
        self._llm = llm
        self._adapter = adapter
        self._namespace = namespace
        self._routes: Mapping[str, RetryPolicy] = {}
        """Their order is no part of the registration."""
        self._registered: AdapterHandle | None = None
        self._entries: Mapping[str, LlmConfigurableProvider] = {}
        self._listed: DirectoryHandle | None = None

    def follow(self) -> None:
        """Tell the service what has changed."""
        adapter = self._adapter
        routes = {name: resolve_retry_policy(route.retry) for name, route in adapter.routes.items()}
        if routes != self._routes:
            if self._registered is None:
                self._registered = self._llm.register_adapter(adapter.providers, adapter)
            else:
                self._registered.replace(adapter.providers)
            self._routes = routes
        entries = {name: self._entry(name) for name in adapter.providers}
        if entries != self._entries:
            if self._listed is None:
                self._listed = self._llm.register_configurable_providers(list(entries.values()))
            else:
                self._listed.replace(list(entries.values()))
            self._entries = entries

    def _entry(self, name: str) -> LlmConfigurableProvider:
        label = self._adapter.provider_info(name).name
        return LlmConfigurableProvider(
            name, label, self._namespace, ("providers", name), declared=True
        )
