"""Budgets that pause an agent and ask, instead of killing it.

Mount it as `ctx.plugin(budget, {"max_steps": 50})`, or for one agent in its `setup`. Looked at
before each step; a step that runs is never cut.
"""

import time
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal
from weakref import WeakKeyDictionary

import msgspec

from dsh_agent import Agent, PreStep, PreStepDecision, Reject
from dsh_brand import HarnessError
from dsh_cordis import Context, Next, Serial
from dsh_llm import AbortSignal, RuntimeContextSource, TokenUsage
from dsh_session import (
    AssistantMessageEvent,
    Session,
    SessionEventAppended,
    StepStart,
    TurnStart,
)

Limit = Literal["steps", "tokens", "seconds", "money"]


class BudgetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent may spend, on each turn or on the whole time it lives; `None` is no limit."""

    max_steps: int | None = None
    max_tokens: int | None = None
    """Prompt and answer of each call added up."""
    max_seconds: float | None = None
    max_money: float | None = None
    """In the unit of the prices."""
    price_per_million_input: float = 0.0
    price_per_million_cached: float = 0.0
    """For prompt tokens that the provider read from its cache."""
    price_per_million_output: float = 0.0
    per: Literal["turn", "life"] = "turn"


class BudgetConfigError(HarnessError):
    """The configuration of a budget is refused."""


class Extend(msgspec.Struct, frozen=True):
    """Go on: the spent budget counts from zero again."""


class BudgetExceeded(Serial[Extend | None], frozen=True, kw_only=True):
    """An agent spent a budget and waits. Answer `Extend()` to let it go on.

    Without an answer its turn ends as blocked; the messages of the step go back into the inbox,
    and the next wake takes them up again.
    """

    name: ClassVar[str] = "budget/exceeded"
    subject: ClassVar[str | None] = "agent"
    agent: Agent
    limit: Limit
    """Which budget it is."""
    spent: float
    """What was spent of it."""
    allowed: float
    """What it held."""
    turn: int
    """Counts from 1."""
    signal: AbortSignal
    """Of the turn; aborts when the turn is cancelled, and the question with it."""


class _Spent:
    """What was spent since the count began."""

    def __init__(self, now_s: float) -> None:
        self.steps = 0
        self.tokens = 0
        self.money = 0.0
        self.since_s = now_s


def budget(ctx: Context, config: Mapping[str, object] | None = None) -> None:
    """Mount a budget.

    Args:
        ctx: Its listeners hear the agents of this context's scope, at the root all of them.
        config: The fields of `BudgetConfig`.

    Raises:
        BudgetConfigError: A field is unknown or has the wrong type.
    """
    try:
        limits = msgspec.convert(dict(config or {}), BudgetConfig)
    except msgspec.ValidationError as error:
        known = ", ".join(BudgetConfig.__struct_fields__)
        raise BudgetConfigError(
            f"the budget is refused: {error}; its keys are {known}", "BUDGET_CONFIG"
        ) from None
    _check(limits)
    Budget(ctx, limits)


def _check(limits: BudgetConfig) -> None:
    for key in ("max_steps", "max_tokens", "max_seconds", "max_money"):
        allowed = getattr(limits, key)
        if allowed is not None and not allowed > 0:
            raise BudgetConfigError(
                f"{key} is {allowed!r}; give more than 0, or leave it out for no limit",
                "BUDGET_CONFIG",
            )
    prices = (limits.price_per_million_input, limits.price_per_million_output)
    if limits.max_money is not None and not any(prices):
        raise BudgetConfigError(
            "max_money counts nothing without prices; give price_per_million_input and "
            "price_per_million_output",
            "BUDGET_CONFIG",
        )


class Budget:
    """Counts what agents spend, and asks before a step that would be too much."""

    def __init__(
        self, ctx: Context, config: BudgetConfig, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._ctx = ctx
        self._config = config
        self._now_s = now_s
        self._spent: WeakKeyDictionary[Session, _Spent] = WeakKeyDictionary()
        ctx.on(SessionEventAppended, self._count, everywhere=ctx is ctx.root)
        ctx.on(PreStep, self._before_step, prepend=True, everywhere=ctx is ctx.root)

    def _of(self, session: Session) -> _Spent:
        spent = self._spent.get(session)
        if spent is None:
            spent = self._spent[session] = _Spent(self._now_s())
        return spent

    def _count(self, event: SessionEventAppended) -> None:
        match event.event.data:
            case TurnStart() if self._config.per == "turn":
                self._spent[event.session] = _Spent(self._now_s())
            case StepStart():
                self._of(event.session).steps += 1
            case AssistantMessageEvent(usage=TokenUsage() as usage):
                spent = self._of(event.session)
                spent.tokens += usage.prompt_tokens + usage.output_tokens
                spent.money += self._price(usage)
            case _:
                pass

    def _price(self, usage: TokenUsage) -> float:
        config, cached = self._config, usage.cache_read_tokens or 0
        return (
            (usage.prompt_tokens - cached) * config.price_per_million_input
            + cached * config.price_per_million_cached
            + usage.output_tokens * config.price_per_million_output
        ) / 1_000_000

    def _exceeded(self, session: Session) -> tuple[Limit, float, float] | None:
        config, spent = self._config, self._of(session)
        now: tuple[tuple[Limit, float, float | None], ...] = (
            ("steps", spent.steps, config.max_steps),
            ("tokens", spent.tokens, config.max_tokens),
            ("seconds", self._now_s() - spent.since_s, config.max_seconds),
            ("money", spent.money, config.max_money),
        )
        for limit, used, allowed in now:
            if allowed is not None and used >= allowed:
                return limit, used, allowed
        return None

    async def _before_step(self, event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
        session = event.agent.session
        exceeded = self._exceeded(session)
        if exceeded is None:
            return await next_()
        limit, used, allowed = exceeded
        question = BudgetExceeded(
            agent=event.agent,
            limit=limit,
            spent=used,
            allowed=allowed,
            turn=event.turn,
            signal=event.signal,
        )
        answer: Extend | None = await self._ctx.serial(question)
        if answer is not None:
            self._spent[session] = _Spent(self._now_s())
            return await next_()
        # Claimed messages are gone unless somebody puts them back.
        for message in event.messages:
            if not isinstance(message.source, RuntimeContextSource):
                event.agent.inject(message)
        return Reject()
