"""Public prices, from the data of `genai-prices`; no network is used."""

from datetime import UTC, datetime
from decimal import Decimal

from genai_prices import Usage, calc_price

from .attempts import Attempt

_PROVIDERS = {"deepseek-official": "deepseek"}
"""Routes of this family that the data knows by another name."""


def public_price(attempt: Attempt, provider: str | None = None) -> Decimal | None:
    """The price of one attempt in US dollars, at its time.

    Args:
        attempt: The attempt; it must have a usage.
        provider: The provider as the data names it; the attempt's route if left out.

    Returns:
        `None` if the data does not know the provider or the model.
    """
    usage = attempt.usage
    if usage is None:
        return None
    route = attempt.provider
    try:
        price = calc_price(
            Usage(
                # The data counts what came from a cache as input too; ours are disjoint.
                input_tokens=usage.prompt_tokens,
                output_tokens=usage.output_tokens,
                cache_read_tokens=usage.cache_read_tokens or 0,
                cache_write_tokens=usage.cache_write_tokens or 0,
            ),
            model_ref=attempt.model,
            provider_id=provider or _PROVIDERS.get(route, route),
            genai_request_timestamp=datetime.fromtimestamp(attempt.time / 1000, UTC),
        )
    except LookupError:
        return None
    return price.total_price
