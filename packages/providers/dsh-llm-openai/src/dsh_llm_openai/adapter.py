"""The adapter: routes of chat-completions providers.

Upstream: packages/llm/llm-openai/src/adapter.ts.
"""

from collections.abc import Mapping, Sequence

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

from ._shared import SharedEngine
from .attempt import Attempt
from .credentials import CredentialLookup, environment
from .engine import Engine, aborted
from .profiles import Profile, resolve_route
from .request import BodyBuilder
from .routes import Route


class OpenAiAdapter:
    """Streams from chat-completions services; usable with `ctx.llm` or on its own.

    Args:
        providers: A profile for each route, as model or as the mapping that makes one.
        credentials: Looks up the keys that profiles name; the environment if left out.
        engine: The HTTP engine; httpx if left out. The adapter closes it.
    """

    def __init__(
        self,
        providers: Mapping[str, Profile | Mapping[str, object]],
        *,
        credentials: CredentialLookup = environment,
        engine: Engine | None = None,
    ) -> None:
        self._routes: dict[str, Route] = {}
        self._builders: dict[str, BodyBuilder] = {}
        for name, given in providers.items():
            profile = given if isinstance(given, Profile) else Profile.model_validate(given)
            route = resolve_route(name, profile)
            self._routes[name] = route
            self._builders[name] = BodyBuilder(route)
        self._credentials = credentials
        self._engine = SharedEngine(_new_engine if engine is None else lambda: engine)

    @property
    def providers(self) -> Sequence[str]:
        """The routes, in the order of their declaration."""
        return list(self._routes)

    def stream(self, options: GenerateOptions) -> Attempt:
        """One attempt at a request; nothing is sent before the first iteration.

        Raises:
            LlmError: `NO_ADAPTER`: the adapter has no such route.
        """
        route = self._route(options.provider)
        return Attempt(
            options,
            route,
            builder=self._builders[route.name],
            credentials=self._credentials,
            engine=self._engine,
        )

    async def list_models(
        self, provider: str, signal: AbortSignal | None = None
    ) -> Sequence[LlmModelInfo]:
        """The models that the profile declares; others work too."""
        _check(signal)
        return [
            LlmModelInfo(provider, facts.id, facts.name, facts.description, facts.input_modalities)
            for facts in self._route(provider).models.values()
        ]

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> LlmResolvedModelInfo:
        """What the profile says about a model."""
        _check(signal)
        facts = self._route(provider).model(model)
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
        return LlmProviderInfo(provider, self._route(provider).label)

    def provider_retry_policy(self, provider: str) -> RetryPolicyConfig | None:
        """The retry policy of the route's profile, `None` for the default."""
        return self._route(provider).retry

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

    def _route(self, provider: str) -> Route:
        route = self._routes.get(provider)
        if route is None:
            known = ", ".join(self._routes) or "none"
            raise LlmError(
                f"dsh-llm-openai has no route {provider!r}; configured: {known}", codes.NO_ADAPTER
            )
        return route


def _new_engine() -> Engine:
    # Imported with the first request: httpx takes a quarter of a second.
    from .transport import HttpxEngine

    return HttpxEngine()


def _check(signal: AbortSignal | None) -> None:
    if signal is not None and signal.aborted:
        raise aborted()
