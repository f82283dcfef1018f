"""The `ctx.llm` service. Upstream: packages/llm/llm/src/service.ts."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import ClassVar, TypeAlias, TypeVar

import msgspec

from dsh_brand import replace
from dsh_cordis import Context, Emit, Handle, Service, SyncWaterfall
from dsh_llm import codes
from dsh_llm._model_facts import (
    checked_catalog,
    checked_model,
    filled_config,
    usable_discoveries,
)
from dsh_llm._projection import project_request
from dsh_llm._registry import OwnedRows, Owner, RegistrationHandle
from dsh_llm.adapter import LlmAdapter, ReconfigurableAdapter
from dsh_llm.chunks import StreamChunk
from dsh_llm.failures import LlmError
from dsh_llm.models import (
    LlmConfigurableProvider,
    LlmDiscoveredModel,
    LlmModelContext,
    LlmModelDiscoveryRequest,
    LlmModelInfo,
    LlmProviderInfo,
    LlmResolvedModelInfo,
    SystemPromptUpdate,
    ToolUpdateMode,
)
from dsh_llm.request import AdapterDefaults, GenerateOptions, LlmCallConfig, call_config_equals
from dsh_llm.retry import RetryPolicy, resolve_retry_policy
from dsh_llm.signal import AbortSignal
from dsh_llm.streaming import AdapterStream, LlmStream, StreamRequest

T = TypeVar("T")
V = TypeVar("V")

ModelDiscovery: TypeAlias = Callable[
    [LlmModelDiscoveryRequest], Awaitable[Sequence[LlmDiscoveredModel]]
]
"""Asks an endpoint which models it serves."""

AdapterHandle: TypeAlias = RegistrationHandle[str]
"""What `register_adapter` returns."""

DirectoryHandle: TypeAlias = RegistrationHandle[LlmConfigurableProvider]
"""What `register_configurable_providers` returns."""


class LlmAdaptersUpdated(Emit, frozen=True):
    """Routes or the directory of providers changed; what is registered now can be read."""

    name: ClassVar[str] = "llm/adapters-updated"


class LlmStreamEvent(SyncWaterfall[AsyncIterator[StreamChunk]], frozen=True):
    """A call to a model begins.

    A listener returns the stream of `next()`, a stream that wraps it, or one of its own; it may put
    another request in the place of a hand-built one (`event.request.rewrite`). No adapter has been
    looked up yet.
    """

    name: ClassVar[str] = "llm/stream"
    service: "LlmService"
    """The service that was called."""
    request: StreamRequest
    """The request, which a listener may rewrite if it was built by hand."""

    @property
    def options(self) -> GenerateOptions:
        """The request as it stands now."""
        return self.request.options


class _Route(msgspec.Struct, frozen=True, eq=False):
    """One route of one registration; its identity is the generation that a call keeps."""

    adapter: LlmAdapter
    info: LlmProviderInfo
    retry_policy: RetryPolicy
    generation: Callable[[], LlmAdapter]
    """Gives the adapter as it is configured at that moment."""


class _Bound(msgspec.Struct, frozen=True, eq=False):
    """A request's config and the route that serves it, both resolved."""

    route: _Route
    generation: LlmAdapter
    """The route's adapter as it was configured when the call was bound."""
    config: LlmCallConfig
    info: LlmResolvedModelInfo


class PreparedCall:
    """One call, bound to the adapter generation that was registered when it was prepared.

    Attributes:
        config: The config with the adapter's defaults.
        retry_policy: The policy of the serving route.
        adapter_defaults: Which values of `config` the adapter supplied; `None` for none.
        context: How much the model can read, if known.
        input_modalities: What the model reads, if declared.
        system_prompt_update: Whether later prompts may stand in history.
        tool_update: Whether tool changes may stand in history.
    """

    def __init__(
        self, service: "LlmService", bound: _Bound, adapter_defaults: AdapterDefaults | None
    ) -> None:
        self._service = service
        self._bound = bound
        self._used = False
        self.config = bound.config
        self.retry_policy: RetryPolicy = bound.route.retry_policy
        self.adapter_defaults = adapter_defaults
        self.context: LlmModelContext | None = bound.info.context
        self.input_modalities: tuple[str, ...] | None = bound.info.input_modalities
        self.system_prompt_update: SystemPromptUpdate | None = bound.info.system_prompt_update
        self.tool_update: ToolUpdateMode | None = bound.info.tool_update

    def stream(self, options: GenerateOptions) -> LlmStream:
        """Start the call; once.

        Raises:
            LlmError: It was started before, or `options` ask for something else than `config`
                (`INVALID_PREPARED_CALL`); the latter does not use the call up.
        """
        if self._used:
            raise LlmError(
                "this prepared call was used: prepare another one for each attempt",
                codes.INVALID_PREPARED_CALL,
            )
        _require_config(options, self.config)
        self._used = True
        return self._service._open(options, self._bound)


class LlmService(Service):
    """Routes to providers, facts about their models, and calls to them.

    A registration belongs to the context through which the service was read, and ends with it.
    """

    key: ClassVar[str] = "llm"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._routes: OwnedRows[_Route] = OwnedRows()
        self._directory: OwnedRows[LlmConfigurableProvider] = OwnedRows()
        self._discoveries: dict[str, ModelDiscovery] = {}
        # By the identity of an adapter; begun anew at each change of the routes.
        self._own_routes: dict[int, frozenset[str]] = {}

    def register_adapter(self, providers: Sequence[str], adapter: LlmAdapter) -> AdapterHandle:
        """Serve the routes `providers` by `adapter`: all of them, or none.

        Raises:
            LlmError: No route, an empty one, or provider info that does not fit
                (`INVALID_ADAPTER`); a route that is listed twice or taken (`DUPLICATE_ADAPTER`).
        """
        if not providers or isinstance(providers, str):
            raise LlmError(
                f"register_adapter needs a list with at least one route, and got {providers!r}",
                codes.INVALID_ADAPTER,
            )

        def routes_of(owner: Owner, names: Sequence[str]) -> Mapping[str, _Route]:
            return self._new_routes(owner, names, adapter)

        return self._register(self._routes, routes_of, providers, f"llm routes {list(providers)}")

    def _new_routes(
        self, owner: Owner, providers: Sequence[str], adapter: LlmAdapter
    ) -> dict[str, _Route]:
        routes: dict[str, _Route] = {}
        generation = _generation_of(adapter)
        for name in providers:
            if not isinstance(name, str) or not name:
                raise LlmError(f"route {name!r} is no non-empty string", codes.INVALID_ADAPTER)
            if name in routes or self._routes.holds_other(name, owner):
                raise LlmError(
                    f"route {name!r} is already served: dispose that adapter, or rename this route",
                    codes.DUPLICATE_ADAPTER,
                )
            info = adapter.provider_info(name)
            if info.id != name or not info.name:
                raise LlmError(
                    f"the adapter describes route {name!r} as {info.id!r}, named {info.name!r}: "
                    "the id must be the route, the name not empty",
                    codes.INVALID_ADAPTER,
                )
            policy = resolve_retry_policy(adapter.provider_retry_policy(name))
            routes[name] = _Route(adapter, info, policy, generation)
        return routes

    def _register(
        self,
        table: OwnedRows[V],
        rows_of: Callable[[Owner, Sequence[T]], Mapping[str, V]],
        items: Sequence[T],
        label: str,
    ) -> RegistrationHandle[T]:
        ctx, owner = self.ctx, Owner()
        rows = rows_of(owner, items)

        def swap(new: Mapping[str, V]) -> None:
            if table.swap(owner, new):
                self._own_routes.clear()
                ctx.emit(LlmAdaptersUpdated())

        def end() -> None:
            owner.disposed = True
            swap({})

        def begin() -> Callable[[], None]:
            swap(rows)
            return end

        handle = ctx.effect(begin, label=label)
        return RegistrationHandle(handle, owner, lambda new: swap(rows_of(owner, new)))

    def list_providers(self) -> list[LlmProviderInfo]:
        """The registered routes, in the order of their registration."""
        return [route.info for route in self._routes.values()]

    def provider_retry_policy(self, route: str) -> RetryPolicy:
        """The policy of a route, as it was when the route was registered.

        Raises:
            LlmError: No such route (`NO_ADAPTER`).
        """
        return self._route(route).retry_policy

    def _route(self, provider: str) -> _Route:
        route = self._routes.get(provider)
        if route is None:
            known = ", ".join(info.id for info in self.list_providers()) or "none"
            raise LlmError(
                f"no adapter serves the route {provider!r}; registered are: {known}",
                codes.NO_ADAPTER,
            )
        return route

    def register_configurable_providers(
        self, entries: Sequence[LlmConfigurableProvider]
    ) -> DirectoryHandle:
        """List providers that a person may set up: all of them, or none.

        Raises:
            LlmError: No entry, or one with an empty part (`INVALID_DIRECTORY`); a provider that is
                listed already (`DUPLICATE_DIRECTORY`).
        """
        if not entries:
            raise LlmError("the directory needs at least one entry", codes.INVALID_DIRECTORY)
        return self._register(
            self._directory, self._new_entries, entries, "llm configurable providers"
        )

    def _new_entries(
        self, owner: Owner, entries: Sequence[LlmConfigurableProvider]
    ) -> dict[str, LlmConfigurableProvider]:
        rows: dict[str, LlmConfigurableProvider] = {}
        for entry in entries:
            name = entry.provider
            if not (name and entry.display_name and entry.settings_ns and all(entry.settings_path)):
                raise LlmError(f"{entry!r} has an empty part", codes.INVALID_DIRECTORY)
            if name in rows or self._directory.holds_other(name, owner):
                raise LlmError(f"provider {name!r} is listed already", codes.DUPLICATE_DIRECTORY)
            rows[name] = replace(entry, extra=None)
        return rows

    def list_configurable_providers(self) -> list[LlmConfigurableProvider]:
        """The directory, in the order of registration."""
        return self._directory.values()

    def register_model_discovery(self, namespace: str, discover: ModelDiscovery) -> Handle:
        """Offer to ask the endpoints of a settings namespace for their models.

        Raises:
            LlmError: An empty namespace (`INVALID_DISCOVERY`), or one that is served already
                (`DUPLICATE_DISCOVERY`).
        """
        if not namespace:
            raise LlmError("a discovery needs a settings namespace", codes.INVALID_DISCOVERY)
        if namespace in self._discoveries:
            raise LlmError(
                f"discovery for {namespace!r} is served already", codes.DUPLICATE_DISCOVERY
            )

        def begin() -> Callable[[], object]:
            self._discoveries[namespace] = discover
            return lambda: self._discoveries.pop(namespace)

        return self.ctx.effect(begin, label=f"llm discovery {namespace}")

    async def discover_models(
        self, namespace: str, request: LlmModelDiscoveryRequest
    ) -> list[LlmDiscoveredModel]:
        """Ask an endpoint, configured or not yet, for its models. Nothing is stored.

        Raises:
            LlmError: Nobody serves the namespace (`NO_DISCOVERY`), the request names neither
                provider nor base URL (`INVALID_DISCOVERY`), or the endpoint failed.
        """
        discover = self._discoveries.get(namespace)
        if discover is None:
            raise LlmError(f"nobody discovers models for {namespace!r}", codes.NO_DISCOVERY)
        if not request.provider and not request.base_url:
            raise LlmError("give a provider or a base URL", codes.INVALID_DISCOVERY)
        return usable_discoveries(await discover(request))

    async def list_models(
        self, provider: str, signal: AbortSignal | None = None
    ) -> list[LlmModelInfo]:
        """The models of a route, as advice: one that is not listed may work all the same.

        Raises:
            LlmError: No such route (`NO_ADAPTER`), or a wrong list (`INVALID_CATALOG`).
        """
        adapter = self._route(provider).adapter
        return checked_catalog(provider, await adapter.list_models(provider, signal))

    async def resolve_model_info(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> LlmResolvedModelInfo:
        """What is known about one model.

        Raises:
            LlmError: No such route (`NO_ADAPTER`), or facts that cannot be (`INVALID_MODEL_*`).
        """
        return await _model_of(self._route(provider).adapter, provider, model, signal)

    async def resolve_call_config(
        self, config: LlmCallConfig, signal: AbortSignal | None = None
    ) -> LlmCallConfig:
        """The config with the adapter's defaults; the very object if there are none to fill in.

        Raises:
            LlmError: As `resolve_model_info`, or the model does not offer the effort
                (`UNSUPPORTED_REASONING_EFFORT`).
        """
        info = await self.resolve_model_info(config.provider, config.model, signal)
        return filled_config(config, info)[0]

    async def prepare_call(
        self, config: LlmCallConfig, signal: AbortSignal | None = None
    ) -> PreparedCall:
        """Look the model up once and bind a call to the adapter that serves it now.

        Raises:
            LlmError: As `resolve_call_config`.
        """
        bound, marks = await self._bind(config, signal)
        return PreparedCall(self, bound, marks)

    async def _bind(
        self, config: LlmCallConfig, signal: AbortSignal | None
    ) -> tuple[_Bound, AdapterDefaults | None]:
        route = self._route(config.provider)
        generation = route.generation()
        info = await _model_of(generation, config.provider, config.model, signal)
        filled, marks = filled_config(config, info)
        return _Bound(route, generation, filled, info), marks

    def stream(self, options: GenerateOptions) -> LlmStream:
        """Call a model. The adapter is looked up, and I/O starts, at the first chunk that is read.

        A failure of the adapter is no exception here: it ends the stream with one finish.
        """
        return self._open(options, None)

    def _open(self, options: GenerateOptions, bound: _Bound | None) -> LlmStream:
        request = StreamRequest(options)
        inner: list[AdapterStream] = []

        def start() -> AsyncIterator[StreamChunk]:
            stream = AdapterStream(request, lambda: self._dispatch(request, bound))
            inner.append(stream)
            return stream

        outer = self.ctx.waterfall(LlmStreamEvent(service=self, request=request), start)
        return LlmStream(outer, inner)

    async def _dispatch(
        self, request: StreamRequest, bound: _Bound | None
    ) -> AsyncIterator[StreamChunk]:
        options = request.options
        if options.signal is not None and options.signal.aborted:
            raise LlmError("the call was aborted before it began", codes.ABORTED)
        if bound is None:
            bound, _ = await self._bind(_config_of(options), options.signal)
            options = _with_config(options, bound.config)
        elif request.rewritten:
            _require_config(options, bound.config)
        own_routes = self._routes_of(bound.route.adapter)
        return bound.generation.stream(project_request(options, bound.info, own_routes))

    def _routes_of(self, adapter: LlmAdapter) -> frozenset[str]:
        """The routes that this very adapter serves now."""
        own = self._own_routes.get(id(adapter))
        if own is None:
            routes = self._routes.values()
            own = frozenset(route.info.id for route in routes if route.adapter is adapter)
            self._own_routes[id(adapter)] = own
        return own


LlmRuntime = LlmService
"""The name that upstream's code uses for the service."""


def _generation_of(adapter: LlmAdapter) -> Callable[[], LlmAdapter]:
    # Asked once for each registration: to compare with a protocol takes longer than a short call.
    if isinstance(adapter, ReconfigurableAdapter):
        return adapter.current_generation
    return lambda: adapter


async def _model_of(
    adapter: LlmAdapter, provider: str, model: str, signal: AbortSignal | None
) -> LlmResolvedModelInfo:
    if not model:
        raise LlmError(
            f"no model is named for the route {provider!r}: give the id of one, such as one that "
            f"list_models({provider!r}) tells",
            codes.UNKNOWN_MODEL,
        )
    info = await adapter.resolve_model(provider, model, signal)
    return checked_model(provider, model, info)


def _require_config(options: GenerateOptions, config: LlmCallConfig) -> None:
    if not call_config_equals(options, config):
        raise LlmError(
            f"the request asks for {_config_of(options)!r}, the call was prepared for {config!r}: "
            "take the fields of the request from the prepared config",
            codes.INVALID_PREPARED_CALL,
        )


def _config_of(options: GenerateOptions) -> LlmCallConfig:
    return LlmCallConfig(
        provider=options.provider,
        model=options.model,
        reasoning_effort=options.reasoning_effort,
        temperature=options.temperature,
        max_tokens=options.max_tokens,
        stop=None if options.stop is None else tuple(options.stop),
    )


def _with_config(options: GenerateOptions, config: LlmCallConfig) -> GenerateOptions:
    if options.max_tokens == config.max_tokens and (
        options.reasoning_effort == config.reasoning_effort
    ):
        return options
    return msgspec.structs.replace(
        options, max_tokens=config.max_tokens, reasoning_effort=config.reasoning_effort
    )
