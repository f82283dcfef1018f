"""Configuration of the plugin."""

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Amount = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]


class ModelPrice(BaseModel):
    """What a model costs, in US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Amount
    """Input that came from no cache."""
    output: Amount
    cache_read: Amount | None = None
    """Input from a cache; as `input` if left out."""
    cache_write: Amount | None = None
    """Input that was put into a cache; as `input` if left out."""


class Config(BaseModel):
    """How usage is priced."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    prices: dict[str, ModelPrice] = {}
    """Own prices by `route/model`; they win over the public ones."""
    price_providers: dict[str, str] = {}
    """The provider whose public prices a route has, by route, such as `{"work": "openai"}`."""
