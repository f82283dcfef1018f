"""What an adapter over HTTP is, whatever its protocol: routes, facts about models, connections."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, Protocol, Self, TypeVar

from dsh_brand import Secret
from dsh_llm import (
    AbortSignal,
    GenerateOptions,
    LlmDiscoveredModel,
    LlmError,
    LlmModelContext,
    LlmModelDiscoveryRequest,
    LlmModelInfo,
    LlmProviderInfo,
    LlmResolvedModelInfo,
    RetryPolicyConfig,
    codes,
)

from .attempt import Attempt, Exchange, Translator
from .credentials import CredentialLookup, environment, resolve_key
from .discovery import IDLE_S, ask_for_models
from .engine import Engine, HttpRequest, refuse_if_aborted
from .failing import StreamFinishes
from .headers import request_headers
from .routes import HttpRoute, KeyHeader
from .shared import SharedEngine

R = TypeVar("R", bound=HttpRoute)
P = TypeVar("P")


class BodyBuilder(Protocol):
    """Builds the bodies of one route; it may keep what it has encoded."""

    def build(self, options: GenerateOptions) -> bytes:
        """The body of a request.

        Raises:
            LlmError: The route cannot express something of it; nothing was sent.
        """
        ...


class HttpAdapter(ABC, Generic[R, P]):
    """Streams from HTTP services; usable with `ctx.llm` or on its own.

    A protocol says how a profile becomes a route, where a request goes, what its body is and how
    the events of an answer become chunks. All else is here.

    Args:
        providers: A profile for each route, as model or as the mapping that makes one.
        credentials: Looks up the keys that profiles name; the environment if left out.
        engine: The HTTP engine; httpx if left out. The adapter closes it.
    """

    distribution: ClassVar[str]
    """The adapter's package, for attribution and messages."""
    default_key_header: ClassVar[KeyHeader] = "authorization"
    """Where the key of an endpoint travels that no profile describes."""

    def __init__(
        self,
        providers: Mapping[str, P | Mapping[str, object]],
        *,
        credentials: CredentialLookup = environment,
        engine: Engine | None = None,
    ) -> None:
        self._routes: Mapping[str, R] = {}
        self._builders: Mapping[str, BodyBuilder] = {}
        self._generation: Self | None = None
        self._credentials = credentials
        self._engine = SharedEngine(_new_engine if engine is None else lambda: engine)
        self.configure(providers)

    @abstractmethod
    def resolve(self, name: str, profile: P | Mapping[str, object]) -> R:
        """The route that a profile describes.

        Raises:
            ProfileError: It makes no usable route.
        """

    @abstractmethod
    def endpoint(self, route: R) -> str:
        """The URL that requests are posted to."""

    @abstractmethod
    def builder(self, route: R) -> BodyBuilder:
        """What builds the bodies of a route, for as long as the route stays as it is."""

    @abstractmethod
    def translator(self, options: GenerateOptions, finishes: StreamFinishes) -> Translator:
        """What folds the answer to a request into chunks; it gets its finish from `finishes`."""

    def exchange(self, options: GenerateOptions, route: R) -> Exchange:
        """What one attempt sends and how its answer is read; nothing is built or looked up yet."""
        builder = self._builders[route.name]
        headers = request_headers(self.distribution, route.headers, keep_alive=route.keep_alive)
        return Exchange(
            route=route,
            url=self.endpoint(route),
            headers={**headers, **self.protocol_headers()},
            body=lambda: builder.build(options),
            key=lambda: self.key(route),
            translator=lambda finishes: self.translator(options, finishes),
        )

    def configure(self, providers: Mapping[str, P | Mapping[str, object]]) -> None:
        """Take other profiles over in one step; calls that run or were prepared keep theirs.

        Raises:
            ProfileError: A profile makes no usable route; nothing has changed.
        """
        self.restore({name: self.resolve(name, given) for name, given in providers.items()})

    def restore(self, routes: Mapping[str, R]) -> None:
        """Put these routes in the place of those in force."""
        # A route that stays as it was keeps its builder, with the messages it has encoded.
        self._builders = {
            name: self._builders[name] if self._routes.get(name) == route else self.builder(route)
            for name, route in routes.items()
        }
        self._routes = dict(routes)
        self._generation = None

    def models_url(self, base_url: str) -> str:
        """Where an endpoint lists its models."""
        return f"{base_url}/models"

    def protocol_headers(self) -> Mapping[str, str]:
        """Headers that the protocol wants in every request."""
        return {}

    @property
    def routes(self) -> Mapping[str, R]:
        """The routes of the generation in force."""
        return self._routes

    @property
    def providers(self) -> Sequence[str]:
        """The routes, in the order of their declaration."""
        return list(self._routes)

    def current_generation(self) -> Self:
        """An adapter over the routes of this moment; it shares keys and connections with this one.

        What is configured later concerns this adapter only. Nothing closes the copy, which is the
        same one until then.
        """
        if self._generation is None:
            self._generation = copy.copy(self)
        return self._generation

    def stream(self, options: GenerateOptions) -> Attempt:
        """One attempt at a request; nothing is sent before the first iteration.

        Raises:
            LlmError: `NO_ADAPTER`: the adapter has no such route.
        """
        exchange = self.exchange(options, self.route(options.provider))
        return Attempt(exchange, self._engine, options.signal)

    async def list_models(
        self, provider: str, signal: AbortSignal | None = None
    ) -> Sequence[LlmModelInfo]:
        """The models that the profile declares; others work too."""
        refuse_if_aborted(signal)
        return [
            LlmModelInfo(provider, facts.id, facts.name, facts.description, facts.input_modalities)
            for facts in self.route(provider).models.values()
        ]

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> LlmResolvedModelInfo:
        """What the profile says about a model."""
        refuse_if_aborted(signal)
        facts = self.route(provider).model(model)
        window = facts.context_window
        return LlmResolvedModelInfo(
            provider=provider,
            id=facts.id,
            name=facts.name,
            description=facts.description,
            input_modalities=facts.input_modalities,
            context=None if window is None else LlmModelContext(window),
            default_max_tokens=facts.max_tokens,
            reasoning=facts.reasoning,
            system_prompt_update="in-history" if facts.system_prompt_in_history else None,
        )

    async def discover(self, request: LlmModelDiscoveryRequest) -> Sequence[LlmDiscoveredModel]:
        """Ask an endpoint, configured or a draft, which models it serves.

        Raises:
            LlmError: `DISCOVERY_FAILED`, `NO_ADAPTER` or `ABORTED`.
        """
        from .settings import checked_base_url  # pydantic, which configuration needs alone

        known = request.provider is not None and request.provider in self._routes
        # A draft may name a route that is not configured yet, and then has a URL of its own.
        named = request.provider if known or request.base_url is None else None
        route = None if named is None else self.route(named)
        try:
            base = checked_base_url(request.base_url or (route.base_url if route else ""))
        except ValueError as error:
            raise LlmError(str(error), codes.DISCOVERY_FAILED) from error
        key = request.api_key or await self._stored_key(route)
        sent = HttpRequest(
            url=self.models_url(base),
            headers={
                **request_headers(self.distribution, route.headers if route else {}),
                **self.protocol_headers(),
            },
            body=None,
            key=key,
            key_header=route.key_header if route else self.default_key_header,
            idle_s=IDLE_S,
        )
        redact = _unchanged if key is None else key.redact
        return await ask_for_models(sent, self._engine, signal=request.signal, redact=redact)

    async def _stored_key(self, route: R | None) -> Secret | None:
        try:
            return None if route is None else await self.key(route)
        except LlmError as error:
            if error.code == codes.MISSING_CREDENTIAL:
                return None
            raise

    def provider_info(self, provider: str) -> LlmProviderInfo:
        """Id and display name of a route."""
        return LlmProviderInfo(provider, self.route(provider).label)

    def provider_retry_policy(self, provider: str) -> RetryPolicyConfig | None:
        """The retry policy of the route's profile, `None` for the default."""
        return self.route(provider).retry

    async def aclose(self, *, cut: bool = False) -> None:
        """Close the connections, those of running streams when these have ended.

        Args:
            cut: End running streams too; their readers get `TRANSPORT`.
        """
        if cut:
            for attempt in self._engine.users:
                if isinstance(attempt, Attempt):
                    await attempt.cut()
        await self._engine.retire()

    def route(self, name: str) -> R:
        """A route by name.

        Raises:
            LlmError: `NO_ADAPTER`.
        """
        route = self._routes.get(name)
        if route is None:
            known = ", ".join(self._routes) or "none"
            raise LlmError(
                f"{self.distribution} has no route {name!r}; configured: {known}",
                codes.NO_ADAPTER,
            )
        return route

    async def key(self, route: R) -> Secret | None:
        """The key of one attempt, looked up now.

        Raises:
            LlmError: `MISSING_CREDENTIAL` or `INVALID_CREDENTIAL`.
        """
        return await resolve_key(
            self.distribution, route.name, route.api_key_env, self._credentials
        )


def _unchanged(text: str) -> str:
    return text


def _new_engine() -> Engine:
    # Imported with the first request: httpx takes a quarter of a second.
    from .transport import HttpxEngine

    return HttpxEngine()
