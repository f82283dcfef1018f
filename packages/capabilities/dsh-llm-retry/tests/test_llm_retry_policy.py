"""Policy keys, delays, and the configuration that there is not."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dsh_llm_retry
from dsh_cordis import ConfigError, Context
from dsh_llm import (
    AlwaysRetryPolicy,
    LlmFailure,
    NormalRetryPolicy,
    RetryBackoff,
    resolve_retry_policy,
)
from dsh_llm_retry import local_delay_ms, policy_key, provider_delay_ms
from dsh_loader import resolve_plugin


def policy(config: dict[str, object]) -> NormalRetryPolicy | AlwaysRetryPolicy:
    resolved = resolve_retry_policy(config)  # type: ignore[arg-type]  # plain JSON of a test
    assert isinstance(resolved, NormalRetryPolicy | AlwaysRetryPolicy)
    return resolved


def backoff(initial: float, longest: float, jitter: float) -> RetryBackoff:
    return RetryBackoff(initial_delay_ms=initial, max_delay_ms=longest, jitter_ratio=jitter)


@pytest.mark.parametrize(
    ("config", "key"),
    [
        pytest.param(
            {},
            '["normal",20,["EMPTY_RESPONSE","RATE_LIMIT","SERVER","STREAM_CLOSED","TIMEOUT",'
            '"TRANSPORT"],500,10000,0.1]',
            id="defaults",
        ),
        pytest.param(
            {"mode": "always", "maxRetries": 3}, '["always",500,10000,0.1]', id="always-defaults"
        ),
        pytest.param(
            {
                "maxRetries": 2,
                "retryableCodes": ["B", "\uff5e", "\U0001f600", "A"],
                "backoff": {"initialDelayMs": 1.0, "maxDelayMs": 1, "jitterRatio": 1e-7},
            },
            '["normal",2,["A","B","\U0001f600","\uff5e"],1,1,1e-7]',
            id="sorted-by-utf16-and-js-numbers",
        ),
        pytest.param(
            {"mode": "always", "backoff": {"initialDelayMs": 0.00001, "jitterRatio": 0.25}},
            '["always",0.00001,10000,0.25]',
            id="small-decimal",
        ),
    ],
)
def test_L85_L5_the_policy_key_is_the_same_text_everywhere(
    config: dict[str, object], key: str
) -> None:
    assert policy_key(policy(config)) == key


def test_L85_the_order_of_codes_does_not_matter() -> None:
    one = policy({"retryableCodes": ["SERVER", "TIMEOUT"]})
    other = policy({"retryableCodes": ["TIMEOUT", "SERVER"]})
    assert policy_key(one) == policy_key(other)


@pytest.mark.parametrize(
    ("retry", "delay"), [(1, 500), (2, 1000), (3, 2000), (4, 4000), (5, 8000), (6, 10_000)]
)
def test_L84_the_delay_doubles_up_to_its_limit(retry: int, delay: int) -> None:
    waited = local_delay_ms(backoff(500, 10_000, 0.1), retry, 0.5)
    assert waited == delay
    assert isinstance(waited, int)


def test_L84_jitter_spreads_and_never_passes_the_limit() -> None:
    spread = backoff(500, 10_000, 0.1)
    assert local_delay_ms(spread, 1, 0.0) == pytest.approx(450)
    assert local_delay_ms(spread, 1, 1.0) == pytest.approx(550)
    assert local_delay_ms(spread, 9, 1.0) == 10_000
    assert local_delay_ms(backoff(500, 10_000, 1), 1, 0.0) == 0


@given(
    initial=st.floats(min_value=5e-324, max_value=2_147_483_647),
    longest=st.floats(min_value=5e-324, max_value=2_147_483_647),
    jitter=st.floats(min_value=0, max_value=1),
    retry=st.integers(min_value=1, max_value=2**60),
    chance=st.floats(min_value=0, max_value=1),
)
def test_L84_any_number_of_retries_gives_a_delay_within_the_limit(
    initial: float, longest: float, jitter: float, retry: int, chance: float
) -> None:
    initial, longest = sorted((initial, longest))
    delay = local_delay_ms(backoff(initial, longest, jitter), retry, chance)
    assert math.isfinite(delay)
    assert 0 <= delay <= longest


@pytest.mark.parametrize("asked", [None, 0, -1, math.nan, math.inf, True])
def test_L84_a_provider_delay_that_is_none_is_not_used(asked: float | None) -> None:
    failure = LlmFailure(message="m", code="c", provider_retry_after_ms=asked)
    assert provider_delay_ms(failure) is None


@pytest.mark.parametrize("key", ["retryPolicy", "retry_policy", "retry"])
async def test_L81_a_policy_is_sent_to_the_provider(key: str) -> None:
    async with Context() as ctx:
        with pytest.raises(ConfigError) as caught:
            await ctx.plugin(dsh_llm_retry, {key: {"mode": "always"}})
        ((path, text),) = caught.value.problems
        assert path == key
        assert "providers.<route>.retry" in text


async def test_L81_every_other_key_is_named_and_no_value_is_shown() -> None:
    async with Context() as ctx:
        with pytest.raises(ConfigError) as caught:
            await ctx.plugin(dsh_llm_retry, {"attempts": "sk-1234", "retryPolicy": "sk-1234"})
        assert [path for path, _ in caught.value.problems] == ["attempts", "retryPolicy"]
        assert "sk-1234" not in str(caught.value)


async def test_L81_no_configuration_is_the_only_one() -> None:
    async with Context() as ctx:
        configs: tuple[object, ...] = (None, {}, dsh_llm_retry.Config())
        for config in configs:
            async with ctx.plugin(dsh_llm_retry, config) as fiber:
                assert fiber.name == "llm-retry"


def test_the_plugin_is_found_by_its_name() -> None:
    assert resolve_plugin("llm-retry") is dsh_llm_retry
