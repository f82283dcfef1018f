"""What a policy says about one retry: its key in the log, and how long to wait.

Upstream: packages/llm/llm-retry/src/policy.ts.
"""

import math
from typing import Final

from dsh_brand import encode_json, utf16_key
from dsh_llm import AlwaysRetryPolicy, LlmFailure, NormalRetryPolicy, RetryBackoff

ExecutablePolicy = NormalRetryPolicy | AlwaysRetryPolicy
MAX_DELAY_MS: Final = 2_147_483_647


def policy_key(policy: ExecutablePolicy) -> str:
    """The policy as JSON text: equal for equal policies, in every implementation."""
    backoff = policy.backoff
    waits = (backoff.initial_delay_ms, backoff.max_delay_ms, backoff.jitter_ratio)
    if isinstance(policy, AlwaysRetryPolicy):
        return encode_json(["always", *waits]).decode()
    codes = sorted(policy.retryable_codes, key=utf16_key)
    return encode_json(["normal", policy.max_retries, codes, *waits]).decode()


def provider_delay_ms(failure: LlmFailure) -> int | float | None:
    """How long the provider asks to wait; `None` without a usable number."""
    delay = failure.provider_retry_after_ms
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        return None
    return delay if math.isfinite(delay) and delay > 0 else None


def local_delay_ms(backoff: RetryBackoff, retry: int, chance: float) -> int | float:
    """How long to wait when the provider says nothing usable.

    Args:
        backoff: Of the policy.
        retry: Number of the retry, from 1 and as high as anybody counts.
        chance: 0..1, where in the range of the jitter the delay lies.
    """
    longest = backoff.max_delay_ms
    try:
        delay = min(math.ldexp(backoff.initial_delay_ms, retry - 1), longest)
    except OverflowError:
        delay = longest
    jitter = backoff.jitter_ratio
    return whole(min(delay * (1 - jitter + 2 * jitter * chance), longest))


def delay_ms(policy: ExecutablePolicy, failure: LlmFailure, retry: int, chance: float) -> float:
    """How long to wait: what the provider asks for if that is allowed, else the local delay."""
    asked = provider_delay_ms(failure)
    if asked is not None and asked <= policy.backoff.max_delay_ms:
        return whole(asked)
    return local_delay_ms(policy.backoff, retry, chance)


def whole(number: float) -> int | float:
    """Whole numbers as `int`: they are written without a fraction."""
    return int(number) if float(number).is_integer() else number
