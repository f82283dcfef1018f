"""What retries in a log must satisfy; the optional companion of the executor.

Upstream: packages/llm/llm-retry/src/invariants.ts.
"""

import math
from collections.abc import Iterable
from typing import NoReturn

from dsh_llm import RetryId
from dsh_session import (
    RawData,
    RequestHeaderEvent,
    SessionEvent,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
)

from .errors import RetryLogError
from .events import LlmRetry, LlmRetryStarted
from .policy import MAX_DELAY_MS

_Chain = tuple[int, int, str, str]
"""Turn, step, provider and policy key."""


def check_retries(events: Iterable[SessionEvent]) -> None:
    """Check the retries of a whole log.

    Raises:
        RetryLogError: The first record that breaks a rule.
    """
    rules = RetryRules()
    for event in events:
        rules.push(event)


class RetryRules:
    """Follows a log event by event and refuses records of retries that do not fit."""

    def __init__(self) -> None:
        self._turn: int | None = None
        self._step: int | None = None
        self._provider: str | None = None
        self._last: dict[_Chain, LlmRetry] = {}
        self._chains: dict[RetryId, _Chain] = {}
        self._started: set[tuple[RetryId, int]] = set()

    def push(self, event: SessionEvent) -> None:
        """Take the next event into account.

        Raises:
            RetryLogError: It is a record that does not fit; it is not taken into account.
        """
        match event.data:
            case TurnStart(turn=turn):
                self._turn, self._step = turn, None
            case TurnEnd():
                self._turn = self._step = None
            case StepStart(step=step):
                self._step = step
            case StepEnd():
                self._step = None
            case RequestHeaderEvent(header=header):
                self._provider = header.config.provider
            case LlmRetry() as record:
                self._retry(event, record)
            case LlmRetryStarted() as record:
                self._start(event, record)
            case RawData() if event.type in (LlmRetry.type, LlmRetryStarted.type):
                _refuse(event, "its data is not of the shape of its type")

    def _retry(self, event: SessionEvent, record: LlmRetry) -> None:
        self._need_step(event, record.turn, record.step)
        if record.provider != self._provider:
            _refuse(
                event,
                f"provider {record.provider!r} is not {self._provider!r} of the request header",
            )
        if not _is_delay(record.delay_ms):
            _refuse(event, f"delayMs {record.delay_ms!r} is not a number in 0..{MAX_DELAY_MS}")
        chain = (record.turn, record.step, record.provider, record.policy_key)
        self._need_place(event, record, chain)
        _need_budget(event, record)
        self._last[chain] = record
        self._chains[record.retry_id] = chain

    def _need_place(self, event: SessionEvent, record: LlmRetry, chain: _Chain) -> None:
        last = self._last.get(chain)
        due = 1 if last is None else last.retry + 1
        if type(record.retry) is not int or record.retry != due:
            _refuse(event, f"it is retry {record.retry!r} where {due} is due")
        if last is not None and record.retry_id != last.retry_id:
            _refuse(event, f"its chain is {last.retry_id!r} and not {record.retry_id!r}")
        if last is None and record.retry_id in self._chains:
            _refuse(event, f"retryId {record.retry_id!r} names another chain")

    def _start(self, event: SessionEvent, record: LlmRetryStarted) -> None:
        self._need_step(event, record.turn, record.step)
        chain = self._chains.get(record.retry_id)
        last = None if chain is None else self._last[chain]
        place = None if last is None else (last.turn, last.step, last.retry)
        if place != (record.turn, record.step, record.retry):
            _refuse(event, f"no retry {record.retry!r} of {record.retry_id!r} waits")
        key = (record.retry_id, record.retry)
        if key in self._started:
            _refuse(event, f"retry {record.retry!r} of {record.retry_id!r} has started already")
        self._started.add(key)

    def _need_step(self, event: SessionEvent, turn: int, step: int) -> None:
        if self._step is None or (turn, step) != (self._turn, self._step):
            _refuse(
                event,
                f"it names step {turn!r}/{step!r} while {self._turn!r}/{self._step!r} is open",
            )


def _need_budget(event: SessionEvent, record: LlmRetry) -> None:
    if record.mode == "always":
        if record.max_retries is not None:
            _refuse(event, "mode 'always' has no maxRetries")
    elif type(record.max_retries) is not int or record.retry > record.max_retries:
        _refuse(event, f"retry {record.retry!r} is not within maxRetries {record.max_retries!r}")


def _is_delay(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) and 0 <= value <= MAX_DELAY_MS


def _refuse(event: SessionEvent, reason: str) -> NoReturn:
    raise RetryLogError(event.type, event.seq, reason)
