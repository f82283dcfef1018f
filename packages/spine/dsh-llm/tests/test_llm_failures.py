"""Failures and the wording that providers use for them."""

import pytest
from typing_extensions import override

from dsh_brand import HarnessError
from dsh_llm import (
    LlmError,
    LlmFailure,
    failure_of,
    is_context_window_exceeded_error,
    is_quota_exceeded_error,
)


def test_L27_an_error_carries_immutable_facts() -> None:
    error = LlmError(
        "slow down", "RATE_LIMIT", status=429, provider_retry_after_ms=1500.0, request_id="r1"
    )
    assert error.failure == LlmFailure("slow down", "RATE_LIMIT", 429, 1500, "r1")
    assert (error.code, str(error)) == ("RATE_LIMIT", "slow down")
    assert isinstance(error, HarnessError)
    with pytest.raises(AttributeError):
        error.failure.code = "X"  # type: ignore[misc]  # the assignment is what the test forbids


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"message": ""}, id="empty-message"),
        pytest.param({"message": 1}, id="message-no-string"),
        pytest.param({"code": ""}, id="empty-code"),
        pytest.param({"status": 99}, id="status-low"),
        pytest.param({"status": 600}, id="status-high"),
        pytest.param({"status": True}, id="status-bool"),
        pytest.param({"status": 404.0}, id="status-float"),
        pytest.param({"provider_retry_after_ms": 0}, id="delay-zero"),
        pytest.param({"provider_retry_after_ms": float("inf")}, id="delay-infinite"),
        pytest.param({"provider_retry_after_ms": float("nan")}, id="delay-nan"),
        pytest.param({"provider_retry_after_ms": True}, id="delay-bool"),
        pytest.param({"request_id": ""}, id="request-id-empty"),
    ],
)
def test_L28_bad_facts_are_refused(facts: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="cannot be made"):
        LlmError(**{"message": "m", "code": "C", **facts})  # type: ignore[arg-type]  # bad on purpose


@pytest.mark.parametrize(
    "detail",
    [
        "context_length_exceeded",
        "Context window overflow",
        "This model's maximum context length is 4096 tokens",
        "max allowed context window is 8k",
        "exceeds the maximum prompt length",
        "Prompt is too long: 210000 tokens",
        "Please reduce the length of the messages",
        "request too large for model context",
        "messages too long for this model context",
        "Input is too long for the model",
        "your prompt with 9000 tokens is larger than the allowed context",
        "超出上下文窗口",
        "输入文本过长",
        "input token count (12000) exceeds the maximum number of tokens allowed",
        "Input is too long for requested model",
        "exceeded model token limit: 131072",
    ],
)
def test_L32_overflow_wording_is_known(detail: str) -> None:
    assert is_context_window_exceeded_error(detail)


@pytest.mark.parametrize(
    "detail",
    [
        "temperature must be between 0 and 2",
        "max_tokens must be positive",
        "rate limit: 90000 tokens per minute",
        "Invalid request: messages must not be empty",
    ],
)
def test_L32_validation_text_is_no_overflow(detail: str) -> None:
    assert not is_context_window_exceeded_error(detail)


@pytest.mark.parametrize(
    "detail",
    [
        "insufficient_quota",
        "Insufficient Balance",
        "quota exceeded",
        "usage limit reached",
        "You exceeded your current quota",
        "you have exceeded the monthly usage quota",
        "You have reached your usage limit",
        "usage limit for this billing cycle",
        "your credits have been exhausted",
        "balance depleted",
        "out of credits",
        "Your credit balance is too low",
    ],
)
def test_L33_quota_wording_is_known(detail: str) -> None:
    assert is_quota_exceeded_error(detail)


@pytest.mark.parametrize("detail", ["rate limit reached", "quota resets in 5 minutes"])
def test_L33_a_rate_limit_is_no_quota(detail: str) -> None:
    assert not is_quota_exceeded_error(detail)


class _ForeignError(Exception):
    code = "QUOTA"


class _SilentError(Exception):
    @override
    def __str__(self) -> str:
        raise RuntimeError("unreadable")


def test_L35_facts_are_trusted_only_when_they_agree() -> None:
    error = LlmError("m", "SERVER", status=500)
    assert failure_of(error) is error.failure
    error.code = "TIMEOUT"
    assert failure_of(error) == LlmFailure("m", "TIMEOUT")


def test_L35_other_errors_give_text_and_code() -> None:
    assert failure_of(HarnessError("h", "NO_SUCH")) == LlmFailure("h", "NO_SUCH")
    assert failure_of(_ForeignError("f")) == LlmFailure("f", "UNKNOWN")
    assert failure_of(ValueError()).code == "UNKNOWN"
    assert failure_of(ValueError()).message
    assert failure_of(_SilentError()).message == failure_of(ValueError()).message


def test_L35_of_a_group_the_first_llm_error_speaks() -> None:
    inner = LlmError("deep", "SERVER")
    group = ExceptionGroup(
        "g", [ValueError("v"), ExceptionGroup("h", [inner]), LlmError("late", "AUTH")]
    )
    assert failure_of(group) is inner.failure
    assert failure_of(ExceptionGroup("g", [ValueError("v"), OSError("o")])).message == "v"
