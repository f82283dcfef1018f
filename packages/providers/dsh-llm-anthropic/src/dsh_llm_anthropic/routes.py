"""What one route of the Messages protocol is; plain values, fixed for its life."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from dsh_llm_http import HttpRoute

CacheRetention = Literal["none", "short", "long"]
"""How long the provider keeps the prefix of a prompt; `none` sets no mark."""
UnsignedThinking = Literal["drop", "send"]
ThinkingKind = Literal["disabled", "enabled", "adaptive"]

OFF = "off"
"""The effort that asks for no thinking."""
MIN_BUDGET_TOKENS = 1024


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """What a named effort is on the wire."""

    thinking: ThinkingKind
    budget_tokens: int | None = None
    """Most tokens of thinking, where the model takes a budget."""
    level: str | None = None
    """`output_config.effort`, where the model thinks as it sees fit."""


class Route(HttpRoute, frozen=True, kw_only=True):
    """One provider route with its dialect of the Messages protocol."""

    efforts: Mapping[str, Effort]
    cache_retention: CacheRetention
    unsigned_thinking: UnsignedThinking
    default_max_tokens: int
    """Sent where neither the request nor the model's facts give a limit: one is always sent."""
