"""What an adapter over HTTP is, whatever its protocol: routes, facts about models, connections."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from dsh_brand import Secret
from dsh_llm import (
    AbortSignal,
    GenerateOptions,
    LlmError,
    LlmModelContext,
    LlmModelInfo,
    LlmProviderInfo,
    LlmResolvedModelInfo,
    RetryPolicyConfig,
    codes,
)

from .attempt import Attempt, Exchange
from .credentials import CredentialLookup, environment, resolve_key
from .engine import Engine, refuse_if_aborted
from .routes import HttpRoute
from .shared import SharedEngine

R = TypeVar("R", bound=HttpRoute)


class HttpAdapter(ABC, Generic[R]):
    """Streams from HTTP services; a protocol says what one exchange is.

    Args:
        distribution: The adapter's package, for attribution and messages.
        routes: The routes by name.
        credentials: Looks up the keys that profiles name.
        engine: The HTTP engine; httpx if left out. The adapter closes it.
    """

    def __init__(
        self,
        distribution: str,
        routes: Mapping[str, R],
        *,
        credentials: CredentialLookup = environment,
        engine: Engine | None = None,
    ) -> None:
        self._distribution = distribution
        self._routes = dict(routes)
        self._credentials = credentials
        self._engine = SharedEngine(_new_engine if engine is None else lambda: engine)

    @abstractmethod
    def exchange(self, options: GenerateOptions, route: R) -> Exchange:
        """What one attempt sends and how its answer is read; nothing is built or looked up yet."""

    @property
    def providers(self) -> Sequence[str]:
        """The routes, in the order of their declaration."""
        return list(self._routes)

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
                f"{self._distribution} has no route {name!r}; configured: {known}",
                codes.NO_ADAPTER,
            )
        return route

    async def key(self, route: R) -> Secret | None:
        """The key of one attempt, looked up now.

        Raises:
            LlmError: `MISSING_CREDENTIAL` or `INVALID_CREDENTIAL`.
        """
        return await resolve_key(
            self._distribution, route.name, route.api_key_env, self._credentials
        )


def _new_engine() -> Engine:
    # Imported with the first request: httpx takes a quarter of a second.
    from .transport import HttpxEngine

    return HttpxEngine()
