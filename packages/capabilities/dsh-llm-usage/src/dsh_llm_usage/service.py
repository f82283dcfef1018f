"""`ctx.llm_usage`: what sessions used."""

from collections.abc import Mapping
from decimal import Decimal
from typing import ClassVar, Protocol

import msgspec

from dsh_cordis import Context, Service
from dsh_session import Session
from dsh_session_projection import SessionProjectionRegistry

from .attempts import Attempt, attempts_of
from .errors import PricesMissingError
from .projection import USAGE_KEY, UsageState, usage_unit
from .totals import SessionUsage

_MILLION = Decimal(1_000_000)


class Price(Protocol):
    """What a model costs, in US dollars per million tokens; see `config.ModelPrice`."""

    @property
    def input(self) -> Decimal:
        """Input that came from no cache."""
        ...

    @property
    def output(self) -> Decimal:
        """Output."""
        ...

    @property
    def cache_read(self) -> Decimal | None:
        """Input from a cache; `None`: as `input`."""
        ...

    @property
    def cache_write(self) -> Decimal | None:
        """Input that was put into a cache; `None`: as `input`."""
        ...


class UsageSettings(Protocol):
    """What the plugin takes; see `Config`."""

    @property
    def prices(self) -> Mapping[str, Price]:
        """Own prices by `route/model`."""
        ...

    @property
    def price_providers(self) -> Mapping[str, str]:
        """The provider whose public prices a route has."""
        ...


class Needs(Context):
    """What the plugin needs."""

    session_projections: SessionProjectionRegistry


class SessionCost(msgspec.Struct, frozen=True, kw_only=True):
    """What a session cost, as far as it is known."""

    usd: Decimal
    """The sum of all attempts that have a price."""
    unpriced: tuple[str, ...] = ()
    """Models without a price as `route/model`, in the order of their first use."""
    unreported: int = 0
    """Attempts whose usage the provider did not tell."""

    @property
    def complete(self) -> bool:
        """Whether the sum holds everything."""
        return not self.unpriced and not self.unreported


class LlmUsage(Service):
    """What the calls of each session used: tokens by model, and their price.

    Every attempt counts, the failed ones too; calls of a fork's prefix count for the session that
    made them. Calls that no session recorded are not counted.
    """

    key: ClassVar[str] = "llm_usage"

    def __init__(self, ctx: Needs, config: UsageSettings) -> None:
        super().__init__(ctx)
        self._config = config
        self._projections = ctx.session_projections
        ctx.session_projections.register(usage_unit())

    def of(self, session: Session) -> SessionUsage:
        """The tokens that a session used, after its whole log."""
        state = self._projections.state_of(session, USAGE_KEY)
        return state.usage if isinstance(state, UsageState) else SessionUsage()

    def cost(self, session: Session) -> SessionCost:
        """What a session cost in US dollars; each attempt has the price of its time.

        Reads the whole log: meant for reports, not for every chunk.

        Raises:
            PricesMissingError: A model has no price of its own in the configuration, and the
                extra `prices` is not installed.
        """
        usd, unpriced, unreported = Decimal(0), dict[str, None](), 0
        for attempt in attempts_of(session):
            if attempt.usage is None:
                unreported += 1
                continue
            price = self._price(attempt)
            if price is None:
                unpriced[_name(attempt)] = None
            else:
                usd += price
        return SessionCost(usd=usd, unpriced=tuple(unpriced), unreported=unreported)

    def _price(self, attempt: Attempt) -> Decimal | None:
        own = self._config.prices.get(_name(attempt))
        if own is not None:
            return _own_price(attempt, own)
        try:
            # The data of all providers takes half a second to load.
            from .prices import public_price
        except ImportError as error:
            raise PricesMissingError(error) from error
        return public_price(attempt, self._config.price_providers.get(attempt.provider))


def _name(attempt: Attempt) -> str:
    return f"{attempt.provider}/{attempt.model}"


def _own_price(attempt: Attempt, price: Price) -> Decimal:
    usage = attempt.usage
    if usage is None:
        return Decimal(0)
    read = price.input if price.cache_read is None else price.cache_read
    write = price.input if price.cache_write is None else price.cache_write
    sum_ = (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + (usage.cache_read_tokens or 0) * read
        + (usage.cache_write_tokens or 0) * write
    )
    return sum_ / _MILLION
