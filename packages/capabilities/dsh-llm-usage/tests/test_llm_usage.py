"""Tokens and money that sessions used."""

import sys
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dsh_llm_retry
import dsh_llm_scripted
import dsh_llm_usage
from dsh_cordis import ConfigError, Context
from dsh_llm import (
    ErrorFinish,
    FinishChunk,
    LlmCallConfig,
    LlmFailure,
    ModelSource,
    RawChunk,
    StreamChunk,
    StreamRecord,
    TextBlock,
    TokenUsage,
    UsageChunk,
    create_assistant_message,
    create_user_message,
)
from dsh_llm_scripted import ScriptedAdapter, ScriptedRoute, text_chunks
from dsh_llm_usage import (
    USAGE_KEY,
    LlmUsage,
    ModelUsage,
    PricesMissingError,
    SessionUsage,
    attempts_of,
    merge_usage,
)
from dsh_session import (
    AssistantAttempt,
    AssistantMessageEvent,
    RequestHeader,
    RequestHeaderEvent,
    Session,
    SessionConfig,
    SessionStore,
    StepStart,
    TurnStart,
    UserMessageEvent,
)
from dsh_session_projection import SessionProjectionRegistry
from dsh_spine import SpineContext, spine

NOW_MS = 1_790_000_000_000
FIRST = TokenUsage(100, 20, 150, cache_read_tokens=30, reasoning_tokens=5)
SECOND = TokenUsage(10, 2, cache_write_tokens=4)


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    async with Context() as root:
        await root.plugin(SessionStore, SessionConfig(now_ms=lambda: NOW_MS))
        await root.plugin(SessionProjectionRegistry)
        yield root


async def mounted(ctx: Context, config: object = None) -> LlmUsage:
    await ctx.plugin(dsh_llm_usage, config)
    service = ctx.get(LlmUsage)
    assert service is not None
    return service


def began(ctx: Context, provider: str = "deepseek", model: str = "deepseek-chat") -> Session:
    store = ctx.get(SessionStore)
    assert store is not None
    session = store.create()
    session.append(TurnStart(turn=1))
    session.append(StepStart(turn=1, step=1))
    header(session, provider, model)
    return session


def header(session: Session, provider: str, model: str) -> None:
    config = LlmCallConfig(provider=provider, model=model)
    session.append(RequestHeaderEvent(header=RequestHeader(config=config), reason="change"))


def records(*usages: TokenUsage) -> tuple[StreamRecord, ...]:
    chunks: list[StreamChunk] = [
        *map(UsageChunk, usages),
        FinishChunk(ErrorFinish(LlmFailure("x", "SERVER"))),
    ]
    return tuple(RawChunk(NOW_MS, chunk) for chunk in chunks)


def answer(
    session: Session,
    usage: TokenUsage | None,
    *in_stream: TokenUsage,
    provider: str = "deepseek",
    model: str = "deepseek-chat",
) -> None:
    message = create_assistant_message(
        [TextBlock("x")], ModelSource(provider=provider, model=model)
    )
    stream = records(*in_stream)
    session.append(
        AssistantMessageEvent(turn=1, step=1, message=message, stream=stream, usage=usage),
        surface_op="append",
    )


def failure(session: Session, *usages: TokenUsage) -> None:
    session.append(AssistantAttempt(turn=1, step=1, stream=records(*usages)))


async def test_L161_every_attempt_counts_the_failed_ones_too(ctx: Context) -> None:
    usage = await mounted(ctx)
    session = began(ctx)
    failure(session)
    failure(session, SECOND, FIRST)
    answer(session, FIRST, SECOND)
    answer(session, None, SECOND)
    assert usage.of(session) == SessionUsage(
        models=(
            ModelUsage(
                provider="deepseek",
                model="deepseek-chat",
                attempts=4,
                failed=2,
                unreported=1,
                input_tokens=210,
                output_tokens=42,
                cache_read_tokens=60,
                cache_write_tokens=4,
                reasoning_tokens=10,
            ),
        ),
        last=SECOND,
    )
    assert usage.of(session).total.prompt_tokens == 274


async def test_an_attempt_belongs_to_the_model_that_made_it(ctx: Context) -> None:
    usage = await mounted(ctx)
    session = began(ctx)
    failure(session, FIRST)
    header(session, "openai", "gpt-4o")
    failure(session, SECOND)
    answer(session, SECOND, provider="local", model="small")
    rows = [(row.provider, row.model, row.output_tokens) for row in usage.of(session).models]
    assert rows == [
        ("deepseek", "deepseek-chat", 20),
        ("openai", "gpt-4o", 2),
        ("local", "small", 2),
    ]


async def test_calls_of_a_forks_prefix_count_for_the_session_that_made_them(ctx: Context) -> None:
    usage = await mounted(ctx)
    parent = began(ctx)
    session_message = create_user_message("hi")
    parent.append(UserMessageEvent(message=session_message), surface_op="append")
    answer(parent, FIRST)
    store = ctx.get(SessionStore)
    assert store is not None
    child = store.fork(parent)
    assert usage.of(child) == SessionUsage()
    failure(child, SECOND)
    [row] = usage.of(child).models
    assert (row.provider, row.output_tokens) == ("deepseek", 2)
    assert [attempt.usage for attempt in attempts_of(child)] == [SECOND]
    assert merge_usage([usage.of(parent), usage.of(child)]).total.output_tokens == 22


async def test_usage_is_served_and_saved_as_a_projection(ctx: Context) -> None:
    usage = await mounted(ctx)
    projections = ctx.get(SessionProjectionRegistry)
    assert projections is not None
    changes: list[object] = []
    projections.on_changed(lambda session, key, view, seq: changes.append((key, view)))
    session = began(ctx)
    assert changes == []
    answer(session, FIRST)
    view = {
        "models": [
            {
                "provider": "deepseek",
                "model": "deepseek-chat",
                "attempts": 1,
                "inputTokens": 100,
                "outputTokens": 20,
                "cacheReadTokens": 30,
                "reasoningTokens": 5,
            }
        ],
        "last": {
            "inputTokens": 100,
            "outputTokens": 20,
            "totalTokens": 150,
            "cacheReadTokens": 30,
            "reasoningTokens": 5,
        },
    }
    assert changes == [(USAGE_KEY, view)]
    rows = projections.checkpoint(session)
    answer(session, SECOND)
    events = session.events[rows[USAGE_KEY]["seq"] + 1 :]
    restored, _ = projections.restore(rows, events, len(session.events) - 1, session.header)
    assert restored.values[USAGE_KEY] == projections.snapshot(session).values[USAGE_KEY]
    assert usage.of(session).total.attempts == 2


async def test_own_prices_are_per_million_tokens(ctx: Context) -> None:
    prices = {"local/small": {"input": "2", "output": 10, "cache_read": 0.5}}
    usage = await mounted(ctx, {"prices": prices})
    session = began(ctx, "local", "small")
    failure(session, FIRST)
    failure(session)
    answer(session, SECOND, provider="local", model="small")
    cost = usage.cost(session)
    expected = (100 * 2 + 20 * 10 + 30 * Decimal("0.5") + 10 * 2 + 2 * 10 + 4 * 2) / 1_000_000
    assert cost.usd == expected
    assert (cost.unpriced, cost.unreported, cost.complete) == ((), 1, False)


async def test_public_prices_are_those_of_the_time(ctx: Context) -> None:
    pytest.importorskip("genai_prices", reason="the extra `prices` is not installed")
    usage = await mounted(ctx, {"price_providers": {"work": "openai"}})
    session = began(ctx, "work", "gpt-4o")
    failure(session, TokenUsage(1000, 100, cache_read_tokens=500))
    failure(session)
    assert usage.cost(session).usd == Decimal("0.004125")
    header(session, "mine", "no-such-model")
    failure(session, FIRST)
    cost = usage.cost(session)
    assert (cost.usd, cost.unpriced) == (Decimal("0.004125"), ("mine/no-such-model",))
    header(session, "deepseek-official", "deepseek-chat")
    failure(session, FIRST)
    assert usage.cost(session).usd > cost.usd


async def test_missing_prices_name_both_ways(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dsh_llm_usage.prices", raising=False)
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    usage = await mounted(ctx)
    session = began(ctx)
    assert usage.cost(session).usd == 0
    answer(session, FIRST)
    with pytest.raises(PricesMissingError, match=r"dsh-llm-usage\[prices\].*`prices`") as caught:
        usage.cost(session)
    assert caught.value.code == "PRICES_MISSING"


async def test_counting_ends_with_the_plugin(ctx: Context) -> None:
    fiber = ctx.plugin(dsh_llm_usage)
    await fiber
    projections = ctx.get(SessionProjectionRegistry)
    assert projections is not None
    session = began(ctx)
    assert projections.state_of(session, USAGE_KEY) is not None
    await fiber.dispose()
    assert projections.state_of(session, USAGE_KEY) is None
    assert ctx.get(LlmUsage) is None


@pytest.mark.parametrize(
    "config",
    [
        {"prices": {"a/b": {"input": -1, "output": 0}}},
        {"prices": {"a/b": {"input": 1}}},
        {"price": {}},
    ],
)
async def test_wrong_configuration_is_refused(ctx: Context, config: object) -> None:
    fiber = ctx.plugin(dsh_llm_usage, config)
    with pytest.raises(ConfigError):
        await fiber
    await fiber.dispose()


counts = st.integers(0, 10**6)
usages = st.builds(
    TokenUsage,
    input_tokens=counts,
    output_tokens=counts,
    cache_read_tokens=st.none() | counts,
    cache_write_tokens=st.none() | counts,
)


@given(st.lists(usages, max_size=6), st.lists(usages, max_size=6))
def test_merging_is_the_usage_of_all_together(
    left: list[TokenUsage], right: list[TokenUsage]
) -> None:
    def fold(values: list[TokenUsage]) -> SessionUsage:
        total = SessionUsage()
        for seq, value in enumerate(values):
            attempt = dsh_llm_usage.Attempt(
                seq=seq, time=0, provider="p", model="m", answered=True, usage=value
            )
            total = total.after(attempt)
        return total

    assert merge_usage([fold(left), fold(right)]).models == fold([*left, *right]).models


async def test_L161_retried_attempts_of_an_agent_are_counted() -> None:
    failed = LlmFailure("overloaded", "SERVER")
    script: list[Sequence[StreamChunk]] = [
        [UsageChunk(FIRST), FinishChunk(ErrorFinish(failed))],
        [FinishChunk(ErrorFinish(failed))],
        text_chunks("Hello.", usage=SECOND),
    ]
    backoff = {"initialDelayMs": 1, "maxDelayMs": 1}
    routes = {"scripted": ScriptedRoute(retry_policy={"backoff": backoff})}
    async with SpineContext() as ctx:
        ctx.plugin(spine)
        ctx.plugin(dsh_llm_scripted, ScriptedAdapter(script, routes=routes))
        ctx.plugin(dsh_llm_retry)
        ctx.plugin(dsh_llm_usage)
        with anyio.fail_after(5):
            await ctx.settled()
            handle = await ctx.agents.create(provider="scripted", model="any")
            handle.agent.followup("Hi")
            await handle.agent.when_idle()
        usage = ctx.get(LlmUsage)
        assert usage is not None
        [row] = usage.of(handle.agent.session).models
    assert (row.provider, row.model) == ("scripted", "any")
    assert (row.attempts, row.failed, row.unreported) == (3, 2, 1)
    assert (row.input_tokens, row.output_tokens) == (110, 22)
