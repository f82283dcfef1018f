"""The scripted adapter: answers calls from a list, without network.

Upstream: packages/llm/llm-testing/src/scripted-adapter.ts.
"""

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Self

import anyio
import msgspec

from dsh_llm import (
    AbortSignal,
    GenerateOptions,
    LlmError,
    LlmModelInfo,
    LlmProviderInfo,
    LlmResolvedModelInfo,
    RetryPolicyConfig,
    StreamChunk,
    codes,
)

from .errors import ScriptExhaustedError


class Hang(msgspec.Struct, frozen=True):
    """An answer that stops after `prefix`, until the request is aborted."""

    prefix: Sequence[StreamChunk] = ()


Answer = Sequence[StreamChunk] | AsyncIterable[StreamChunk] | Exception | Hang
Entry = Answer | Callable[[GenerateOptions], Answer]
"""What answers one call: chunks, an iterator, an error to raise, a hang, or a function of these."""


class ScriptedRoute(msgspec.Struct, frozen=True, kw_only=True):
    """What one route says about itself."""

    name: str = "Scripted model"
    models: Sequence[LlmResolvedModelInfo] = ()
    """Listed models, `provider` included."""
    other_models: LlmResolvedModelInfo | None = None
    """Facts of models that are not listed; their id and route are put in. `None`: no facts."""
    retry_policy: RetryPolicyConfig | None = None


class ScriptedAdapter:
    """Plays a script, one entry per call, over all its routes.

    Args:
        script: The entries, in the order of the calls.
        routes: Routes to register, with their facts or by name alone.
    """

    def __init__(
        self,
        script: Sequence[Entry],
        *,
        routes: Mapping[str, ScriptedRoute] | Sequence[str] = ("scripted",),
    ) -> None:
        self.requests: list[GenerateOptions] = []
        """The very request objects, in the order of the calls."""
        self._script = list(script)
        self._routes = (
            dict(routes)
            if isinstance(routes, Mapping)
            else {route: ScriptedRoute() for route in routes}
        )

    @property
    def providers(self) -> Sequence[str]:
        """The routes."""
        return list(self._routes)

    @property
    def remaining(self) -> int:
        """How many entries no call has used."""
        return len(self._script) - min(len(self.requests), len(self._script))

    def stream(self, options: GenerateOptions) -> AsyncIterator[StreamChunk]:
        """Use up one entry.

        Raises:
            ScriptExhaustedError: There is none left.
        """
        number = len(self.requests)
        self.requests.append(options)
        if number >= len(self._script):
            raise ScriptExhaustedError(len(self._script))
        entry = self._script[number]
        answer = entry(options) if callable(entry) else entry
        return _Playback(answer, options.signal)

    async def list_models(
        self, provider: str, signal: AbortSignal | None = None
    ) -> Sequence[LlmModelInfo]:
        """The listed models of the route."""
        return [
            LlmModelInfo(provider, model.id, model.name, model.description, model.input_modalities)
            for model in self._route(provider).models
        ]

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> LlmResolvedModelInfo:
        """The facts of a model, listed or not."""
        route = self._route(provider)
        for listed in route.models:
            if listed.id == model:
                return listed
        if route.other_models is None:
            return LlmResolvedModelInfo(provider, model, model)
        facts = route.other_models
        return msgspec.structs.replace(facts, provider=provider, id=model, name=model)

    def provider_info(self, provider: str) -> LlmProviderInfo:
        """Id and name of the route."""
        return LlmProviderInfo(provider, self._route(provider).name)

    def provider_retry_policy(self, provider: str) -> RetryPolicyConfig | None:
        """The retry policy of the route."""
        return self._route(provider).retry_policy

    def _route(self, provider: str) -> ScriptedRoute:
        route = self._routes.get(provider)
        if route is None:
            raise LlmError(
                f"the scripted adapter has no route {provider!r}, only {self.providers}",
                codes.NO_ADAPTER,
            )
        return route


class _Playback:
    """One answer, as an iterator that another task may close."""

    def __init__(self, answer: Answer, signal: AbortSignal | None) -> None:
        self._answer = answer
        self._signal = signal
        self._source = _chunks_of(answer)
        self._waiting: anyio.CancelScope | None = None
        self._over = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> StreamChunk:
        if self._over:
            raise StopAsyncIteration
        try:
            return await self._next()
        except BaseException:
            self._over = True
            raise

    async def aclose(self) -> None:
        """Stop; a hang ends, a source of its own that can be closed is closed."""
        self._over = True
        if self._waiting is not None:
            self._waiting.cancel()
        close = getattr(self._source, "aclose", None)
        if close is not None:
            await close()

    async def _next(self) -> StreamChunk:
        if isinstance(self._answer, Exception):
            raise self._answer
        if isinstance(self._source, AsyncIterator):
            return await anext(self._source)
        for chunk in self._source:
            return chunk
        if isinstance(self._answer, Hang):
            await self._hang()
        raise StopAsyncIteration

    async def _hang(self) -> None:
        with anyio.CancelScope() as self._waiting:
            if self._signal is None:
                await anyio.sleep_forever()
            else:
                await self._signal.wait()
        raise LlmError("the request was aborted by its caller", codes.ABORTED)


def _chunks_of(answer: Answer) -> AsyncIterator[StreamChunk] | Iterator[StreamChunk]:
    if isinstance(answer, Hang):
        return iter(answer.prefix)
    if isinstance(answer, AsyncIterable):
        return aiter(answer)
    return iter(()) if isinstance(answer, Exception) else iter(answer)
