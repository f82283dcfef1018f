"""OpenTelemetry spans of calls to models, after the semantic conventions for generative AI.

The module is a plugin: `ctx.plugin(dsh_llm.otel)` makes one span `chat <model>` per attempt. It
needs the extra `otel` and no SDK: without one the spans go nowhere. A span holds what
`dsh_llm.telemetry` knows; no text of a prompt, an answer, an error or a tool call.
"""

from contextlib import AbstractContextManager

import msgspec
from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
from opentelemetry.util.types import AttributeValue

from dsh_cordis import Context
from dsh_llm.chunks import TokenUsage
from dsh_llm.request import GenerateOptions
from dsh_llm.telemetry import AttemptFacts, watch_attempts

name = "llm-otel"

_FINISHES = {"tool-calls": "tool_calls", "max-tokens": "length"}
"""Finish kinds that the conventions call otherwise."""


class SpanWatch:
    """The span of one attempt; current while the request opens, so that HTTP spans lie below it."""

    def __init__(self, tracer: Tracer, options: GenerateOptions) -> None:
        self._span: Span = tracer.start_span(
            f"chat {options.model}", kind=SpanKind.CLIENT, attributes=_request(options)
        )

    def opening(self) -> AbstractContextManager[object]:
        """Make the span the current one; it records no exception, whose text is the provider's."""
        return trace.use_span(
            self._span, end_on_exit=False, record_exception=False, set_status_on_exception=False
        )

    def ended(self, facts: AttemptFacts) -> None:
        """Complete the span and end it."""
        self._span.set_attributes(_response(facts))
        if facts.failed:
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


def _request(options: GenerateOptions) -> dict[str, AttributeValue]:
    return _known(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": options.provider,
            "gen_ai.request.model": options.model,
            "gen_ai.request.stream": True,
            "gen_ai.request.max_tokens": options.max_tokens,
            "gen_ai.request.temperature": options.temperature,
            "gen_ai.conversation.id": options.session_id,
            "dsh.purpose": options.purpose,
        }
    )


def _response(facts: AttemptFacts) -> dict[str, AttributeValue]:
    first = facts.first_token_ms
    attributes: dict[str, AttributeValue | None] = {
        # A listener may have chosen another route than the one that was asked for at first.
        "gen_ai.provider.name": facts.provider,
        "gen_ai.request.model": facts.model,
        "gen_ai.response.finish_reasons": [_FINISHES.get(facts.outcome, facts.outcome)],
        "gen_ai.response.time_to_first_chunk": None if first is None else first / 1000,
        "error.type": (facts.code or facts.outcome) if facts.failed else None,
        "http.response.status_code": facts.status,
        "dsh.provider.request_id": facts.request_id,
    }
    return _known(attributes) | ({} if facts.usage is None else _tokens(facts.usage))


def _tokens(usage: TokenUsage) -> dict[str, AttributeValue]:
    return _known(
        {
            # The conventions count what came from a cache as input too; ours are disjoint.
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning_tokens,
        }
    )


def _known(attributes: dict[str, AttributeValue | None]) -> dict[str, AttributeValue]:
    return {key: value for key, value in attributes.items() if value is not None}


class SpanConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration of the plugin."""

    tracer_provider: TracerProvider | None = None
    """Makes the spans; `None`: the one that the application registered."""


def apply(ctx: Context, config: SpanConfig | None = None) -> None:
    """Make one span per attempt."""
    tracer = trace.get_tracer(
        "dsh_llm",
        tracer_provider=None if config is None else config.tracer_provider,
        schema_url="https://opentelemetry.io/schemas/1.41.0",
    )
    watch_attempts(ctx, lambda options: SpanWatch(tracer, options))
