"""Sums of usage, by model and over all."""

from collections.abc import Iterable

import msgspec

from dsh_brand import Wire
from dsh_llm import TokenUsage

from .attempts import Attempt


class ModelUsage(Wire, frozen=True, kw_only=True):
    """What one model was used for. The three input counts are disjoint."""

    provider: str
    model: str
    attempts: int = 0
    """All of them, the failed ones too."""
    failed: int = 0
    """Attempts that no message came of."""
    unreported: int = 0
    """Attempts whose usage the provider did not tell: they are missing in the counts."""
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    """A share of `output_tokens`."""

    @property
    def prompt_tokens(self) -> int:
        """All that was sent, from a cache or not."""
        return self.input_tokens + self.cache_read_tokens + self.cache_write_tokens

    def plus(self, other: "ModelUsage") -> "ModelUsage":
        """The sum, under this provider and model."""
        return ModelUsage(
            provider=self.provider,
            model=self.model,
            attempts=self.attempts + other.attempts,
            failed=self.failed + other.failed,
            unreported=self.unreported + other.unreported,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


class SessionUsage(Wire, frozen=True, kw_only=True):
    """What the attempts of a session used."""

    models: tuple[ModelUsage, ...] = ()
    """One row per route and model, in the order of their first use."""
    last: TokenUsage | None = None
    """Of the newest attempt that reported one: how full the context is."""

    @property
    def total(self) -> ModelUsage:
        """The sum of all rows, without provider and model."""
        total = ModelUsage(provider="", model="")
        for row in self.models:
            total = total.plus(row)
        return total

    def after(self, attempt: Attempt) -> "SessionUsage":
        """The usage with one more attempt."""
        last = self.last if attempt.usage is None else attempt.usage
        return SessionUsage(models=_added(self.models, _row(attempt)), last=last)


def merge_usage(usages: Iterable[SessionUsage]) -> SessionUsage:
    """The usage of several sessions together, such as an agent's and its helpers'."""
    rows: tuple[ModelUsage, ...] = ()
    for usage in usages:
        for row in usage.models:
            rows = _added(rows, row)
    return SessionUsage(models=rows)


def _row(attempt: Attempt) -> ModelUsage:
    row = ModelUsage(
        provider=attempt.provider,
        model=attempt.model,
        attempts=1,
        failed=0 if attempt.answered else 1,
        unreported=1 if attempt.usage is None else 0,
    )
    usage = attempt.usage
    if usage is None:
        return row
    return msgspec.structs.replace(
        row,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens or 0,
        cache_write_tokens=usage.cache_write_tokens or 0,
        reasoning_tokens=usage.reasoning_tokens or 0,
    )


def _added(rows: tuple[ModelUsage, ...], new: ModelUsage) -> tuple[ModelUsage, ...]:
    for place, row in enumerate(rows):
        if (row.provider, row.model) == (new.provider, new.model):
            return (*rows[:place], row.plus(new), *rows[place + 1 :])
    return (*rows, new)
