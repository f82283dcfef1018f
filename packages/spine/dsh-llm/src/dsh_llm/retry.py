"""How often and how patiently a failed call is repeated: the policy, not its execution.

Upstream: packages/llm/llm/src/retry-policy.ts.
"""

import math
from collections.abc import Mapping
from typing import Final, NoReturn, TypeAlias

from dsh_brand import MAX_SAFE_INT, HarnessError, JsonValue, Wire, to_json
from dsh_llm import codes

DEFAULT_MAX_RETRIES: Final = 20
DEFAULT_RETRYABLE_CODES: Final = (
    codes.EMPTY_RESPONSE,
    codes.RATE_LIMIT,
    codes.SERVER,
    codes.STREAM_CLOSED,
    codes.TIMEOUT,
    codes.TRANSPORT,
)
DEFAULT_BACKOFF: Final[Mapping[str, float]] = {
    "initialDelayMs": 500,
    "maxDelayMs": 10_000,
    "jitterRatio": 0.1,
}
MAX_DELAY_MS: Final = 2_147_483_647
"""The longest delay that every implementation's timers can wait."""


class RetryBackoff(Wire, frozen=True):
    """How long to wait before a retry: doubled each time, up to a limit, spread by chance."""

    initial_delay_ms: int | float
    max_delay_ms: int | float
    jitter_ratio: int | float
    """0..1: a delay is multiplied by a factor between 1 - this and 1 + this."""


class RetryPolicy(Wire, frozen=True, tag_field="mode"):
    """Base of the two policies; immutable, complete, made by `resolve_retry_policy`."""


class NormalRetryPolicy(RetryPolicy, frozen=True, tag="normal"):
    """Retries what the listed codes say may pass by itself, a limited number of times."""

    max_retries: int
    retryable_codes: tuple[str, ...]
    backoff: RetryBackoff


class AlwaysRetryPolicy(RetryPolicy, frozen=True, tag="always"):
    """Retries whatever happened, without end; for unattended runs."""

    backoff: RetryBackoff


RetryPolicyConfig: TypeAlias = RetryPolicy | Mapping[str, JsonValue]
"""What an adapter or a person writes: a policy, or its JSON with any part left out."""


class RetryPolicyError(HarnessError, ValueError):
    """A retry policy that cannot be followed.

    Attributes:
        path: Which part is wrong, such as `retryPolicy.backoff.jitterRatio`.
    """

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}", codes.INVALID_RETRY_POLICY)
        self.path = path


def resolve_retry_policy(
    config: RetryPolicyConfig | None = None, *, path: str = "retryPolicy"
) -> RetryPolicy:
    """Check a policy and fill in what it leaves out; keys may be camelCase or snake_case.

    Args:
        config: What was configured; `None` gives the normal policy with its defaults.
        path: What the messages of errors call it.

    Raises:
        RetryPolicyError: An unknown key, or a value that is out of range.
    """
    if config is None:
        return resolve_retry_policy({})
    value = to_json(config) if isinstance(config, RetryPolicy) else config
    fields = _fields(value, ("mode", "maxRetries", "retryableCodes", "backoff"), path)
    mode = fields.get("mode", "normal")
    backoff = _backoff(fields.get("backoff", {}), f"{path}.backoff")
    if mode == "always":
        return AlwaysRetryPolicy(backoff)
    if mode != "normal":
        _refuse(f"{path}.mode", f"{mode!r} is neither 'normal' nor 'always'")
    return NormalRetryPolicy(
        _retries(fields.get("maxRetries", DEFAULT_MAX_RETRIES), f"{path}.maxRetries"),
        _codes(fields.get("retryableCodes", DEFAULT_RETRYABLE_CODES), f"{path}.retryableCodes"),
        backoff,
    )


def _fields(value: JsonValue, names: tuple[str, ...], path: str) -> dict[str, JsonValue]:
    if not isinstance(value, Mapping):
        _refuse(path, f"{value!r:.80} is not an object")
    spellings = {_snake(name): name for name in names} | {name: name for name in names}
    fields: dict[str, JsonValue] = {}
    for key, item in value.items():
        name = spellings.get(key)
        if name is None:
            _refuse(f"{path}.{key}", f"unknown key; known are {', '.join(names)}")
        if name in fields:
            _refuse(f"{path}.{key}", "given twice, in two spellings")
        if item is not None:
            fields[name] = item
    return fields


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def _retries(value: JsonValue, path: str) -> int:
    number = _number(value, path)
    if not isinstance(number, int) or not 0 <= number <= MAX_SAFE_INT:
        _refuse(path, f"{value!r} is not an integer in 0..2^53-1")
    return number


def _codes(value: JsonValue, path: str) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value:
        _refuse(path, f"{value!r:.80} is not a list with at least one code")
    result: list[str] = []
    for index, code in enumerate(value):
        if not isinstance(code, str) or not code:
            _refuse(f"{path}[{index}]", f"{code!r:.80} is not a non-empty string")
        if code in result:
            _refuse(f"{path}[{index}]", f"{code!r} is listed twice")
        result.append(code)
    return tuple(result)


def _backoff(value: JsonValue, path: str) -> RetryBackoff:
    fields = {**DEFAULT_BACKOFF, **_fields(value, tuple(DEFAULT_BACKOFF), path)}
    initial = _delay(fields["initialDelayMs"], f"{path}.initialDelayMs")
    longest = _delay(fields["maxDelayMs"], f"{path}.maxDelayMs")
    if initial > longest:
        _refuse(f"{path}.initialDelayMs", f"{initial} is above maxDelayMs, which is {longest}")
    jitter = _number(fields["jitterRatio"], f"{path}.jitterRatio")
    if not 0 <= jitter <= 1:
        _refuse(f"{path}.jitterRatio", f"{jitter} is outside 0..1")
    return RetryBackoff(initial, longest, jitter)


def _delay(value: JsonValue, path: str) -> int | float:
    number = _number(value, path)
    if not 0 < number <= MAX_DELAY_MS:
        _refuse(path, f"{number} is not a delay above 0 and at most {MAX_DELAY_MS} ms")
    return number


def _number(value: JsonValue, path: str) -> int | float:
    """A finite number, whole ones as `int`: they are written without a fraction."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        _refuse(path, f"{value!r:.80} is not a finite number")
    return int(value) if float(value).is_integer() else value


def _refuse(path: str, problem: str) -> NoReturn:
    raise RetryPolicyError(path, problem)
