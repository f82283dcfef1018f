"""What a provider implements. Upstream: packages/llm/llm/src/types.ts."""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol, runtime_checkable

from typing_extensions import TypeIs

from dsh_llm.chunks import StreamChunk
from dsh_llm.models import LlmModelInfo, LlmProviderInfo, LlmResolvedModelInfo
from dsh_llm.request import GenerateOptions
from dsh_llm.retry import RetryPolicyConfig
from dsh_llm.signal import AbortSignal


@runtime_checkable
class AsyncClosable(Protocol):
    """What an iterator has that must be told when nobody reads on."""

    async def aclose(self) -> None:
        """Release everything that the iterator holds."""
        ...


def is_closable(stream: object) -> TypeIs[AsyncClosable]:
    """Whether it has `aclose()`; comparing with the protocol takes longer than a short call."""
    return hasattr(stream, "aclose")


class LlmAdapter(Protocol):
    """What a provider registers with `ctx.llm.register_adapter()`."""

    def stream(self, options: GenerateOptions) -> AsyncIterator[StreamChunk]:
        """Make one attempt at an answer; retries are the business of others.

        No task group, cancel scope or timeout may be open across a yielded chunk. If the iterator
        has `aclose()`, it is called when the reader leaves early.

        Args:
            options: The request; its signal asks to stop.

        Yields:
            Chunks with indexes in first-seen order, at most one usage, and one finish at the end.
            An error or aborted finish may leave blocks open.

        Raises:
            LlmError: The attempt failed; the service turns it into a finish.
        """
        ...

    async def list_models(
        self, provider: str, signal: AbortSignal | None = None
    ) -> Sequence[LlmModelInfo]:
        """The models of a route, as advice: a model that is not listed may work all the same."""
        ...

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> LlmResolvedModelInfo:
        """What is known about one model; ends promptly when the signal aborts."""
        ...

    def provider_info(self, provider: str) -> LlmProviderInfo:
        """Id and display name of a route; the id is the route."""
        ...

    def provider_retry_policy(self, provider: str) -> RetryPolicyConfig | None:
        """The retry policy of a route; `None` means the normal default."""
        ...


@runtime_checkable
class ReconfigurableAdapter(Protocol):
    """What an adapter has besides, if its configuration may change while it is registered."""

    def current_generation(self) -> LlmAdapter:
        """An adapter that keeps the configuration of this moment, whatever is changed later.

        The service takes one for each call before it looks the model up, so that the facts, the
        request and the credential of the call come from one configuration. Nothing closes it: it
        shares connections with the adapter that gave it.
        """
        ...
