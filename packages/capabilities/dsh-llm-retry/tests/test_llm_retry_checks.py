"""The companion: which records of retries a log may hold."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dsh_brand import HarnessError
from dsh_llm import LlmCallConfig, LlmFailure, RetryId, resolve_retry_policy
from dsh_llm_retry import (
    LlmRetry,
    LlmRetryStarted,
    RetryLogError,
    RetryRules,
    check_retries,
    policy_key,
)
from dsh_session import (
    Completed,
    RawData,
    RequestHeader,
    RequestHeaderEvent,
    SessionEvent,
    SessionEventData,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
    decode_event,
)

RECORDING = (
    Path(__file__).parents[4].parent
    / "shared"
    / "fixtures"
    / "upstream-sessions"
    / "empty-response-retry"
    / "session.jsonl"
)


def retry(number: int = 1, **changes: Any) -> LlmRetry:  # any field of a record
    record = LlmRetry(
        retry_id=RetryId("r"),
        turn=1,
        step=1,
        provider="p",
        mode="normal",
        policy_key="k",
        retry=number,
        max_retries=3,
        delay_ms=100,
        failure=LlmFailure(message="m", code="SERVER"),
    )
    return msgspec.structs.replace(record, **changes)


def started(number: int = 1, **changes: Any) -> LlmRetryStarted:  # as above
    record = LlmRetryStarted(retry_id=RetryId("r"), turn=1, step=1, retry=number)
    return msgspec.structs.replace(record, **changes)


def header(provider: str = "p") -> RequestHeaderEvent:
    config = LlmCallConfig(provider=provider, model="m")
    return RequestHeaderEvent(header=RequestHeader(config=config), reason="initial")


OPEN = (TurnStart(turn=1), StepStart(turn=1, step=1), header())
NEXT_STEP = (StepEnd(turn=1, step=1), StepStart(turn=1, step=2))
OVER = (StepEnd(turn=1, step=1), TurnEnd(turn=1, reason=Completed()))


def log(*data: SessionEventData) -> list[SessionEvent]:
    return [
        SessionEvent(type=item.type, seq=seq, time=seq, data=item) for seq, item in enumerate(data)
    ]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param((), id="no-retry"),
        pytest.param((retry(), started(), retry(2), started(2)), id="one-chain"),
        pytest.param((retry(), *OVER), id="broken-off"),
        pytest.param(
            (retry(), started(), retry(retry_id=RetryId("s"), policy_key="l")), id="other-policy"
        ),
        pytest.param(
            (retry(), header("q"), retry(retry_id=RetryId("s"), provider="q")), id="other-provider"
        ),
        pytest.param((retry(), *NEXT_STEP, retry(retry_id=RetryId("s"), step=2)), id="other-step"),
        pytest.param((retry(mode="always", max_retries=None),), id="always"),
        pytest.param((retry(delay_ms=0),), id="no-delay"),
        pytest.param((retry(delay_ms=2_147_483_647),), id="longest-delay"),
    ],
)
def test_L89_sound_records_pass(data: tuple[SessionEventData, ...]) -> None:
    check_retries(log(*OPEN, *data))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param((*OVER, retry()), "None/None is open", id="outside-a-turn"),
        pytest.param((*NEXT_STEP, retry()), "1/2 is open", id="outside-its-step"),
        pytest.param((retry(turn=2),), "names step 2/1", id="another-turn"),
        pytest.param((retry(provider="q"),), "provider 'q' is not 'p'", id="provider"),
        pytest.param((retry(2),), "where 1 is due", id="first-number"),
        pytest.param((retry(), started(), retry()), "where 2 is due", id="same-number"),
        pytest.param((retry(), started(), retry(3)), "where 2 is due", id="left-out-number"),
        pytest.param(
            (retry(), started(), retry(2, retry_id=RetryId("s"))),
            "its chain is 'r'",
            id="changed-id",
        ),
        pytest.param((retry(), retry(policy_key="l")), "another chain", id="reused-id"),
        pytest.param(
            (retry(), *NEXT_STEP, retry(step=2)), "another chain", id="reused-id-in-a-later-step"
        ),
        pytest.param((retry(max_retries=0),), "not within maxRetries 0", id="over-budget"),
        pytest.param((retry(max_retries=None),), "not within maxRetries None", id="no-budget"),
        pytest.param((retry(mode="always"),), "has no maxRetries", id="always-with-budget"),
        pytest.param((retry(delay_ms=-1),), "delayMs -1", id="negative-delay"),
        pytest.param((retry(delay_ms=2_147_483_648),), "delayMs 2147483648", id="long-delay"),
        pytest.param((retry(delay_ms=float("nan")),), "delayMs nan", id="no-number"),
        pytest.param((started(),), "waits", id="start-alone"),
        pytest.param((retry(), started(2)), "waits", id="start-of-another-number"),
        pytest.param((retry(), started(), started()), "started already", id="start-repeated"),
        pytest.param((retry(), *OVER, started()), "is open", id="start-outside"),
        pytest.param(
            (retry(), started(), retry(2), started()), "waits", id="start-of-a-past-retry"
        ),
    ],
)
def test_L89_S133_a_record_that_does_not_fit_is_refused(
    data: tuple[SessionEventData, ...], reason: str
) -> None:
    events = log(*OPEN, *data)
    with pytest.raises(RetryLogError) as caught:
        check_retries(events)
    error = caught.value
    assert isinstance(error, HarnessError)
    assert (error.code, error.seq) == ("INVARIANT", len(events) - 1)
    assert reason in error.message


@pytest.mark.parametrize("event_type", ["llm/retry", "llm/retry-started"])
def test_L89_a_record_of_another_shape_is_refused(event_type: str) -> None:
    event = SessionEvent(type=event_type, seq=0, time=0, data=RawData({"retry": "one"}))
    with pytest.raises(RetryLogError, match="shape"):
        check_retries([event])


def test_L89_a_header_is_needed() -> None:
    with pytest.raises(RetryLogError, match="is not None"):
        check_retries(log(*OPEN[:2], retry()))


def test_L89_a_refused_record_changes_nothing() -> None:
    rules = RetryRules()
    for event in log(*OPEN):
        rules.push(event)
    (bad, good) = log(retry(2), retry())
    with pytest.raises(RetryLogError):
        rules.push(bad)
    rules.push(good)


@pytest.mark.skipif(not RECORDING.exists(), reason="the recordings are not beside this repository")
def test_L85_L86_a_record_of_the_reference_reads_and_writes_alike() -> None:
    lines = RECORDING.read_text(encoding="utf-8").splitlines()
    rows = [row for row in map(json.loads, lines) if row["type"].startswith("llm/")]
    events = [
        decode_event(json.dumps({**row, "seq": seq, "time": 0}).encode())
        for seq, row in enumerate(rows)
    ]
    first, second = (event.data for event in events)
    assert isinstance(first, LlmRetry)
    assert isinstance(second, LlmRetryStarted)
    check_retries(
        log(TurnStart(turn=1), StepStart(turn=1, step=1), header(first.provider), first, second)
    )
    codes = ["TRANSPORT", "EMPTY_RESPONSE", "RATE_LIMIT", "TIMEOUT", "SERVER"]
    policy = resolve_retry_policy(
        {
            "maxRetries": 2,
            "retryableCodes": codes,
            "backoff": {"initialDelayMs": 1, "maxDelayMs": 1, "jitterRatio": 0},
        }
    )
    assert policy_key(policy) == first.policy_key  # type: ignore[arg-type]  # resolving gives no other
