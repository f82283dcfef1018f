"""What is known about named providers (L143, L144, L179)."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from dsh_llm_http import KeyHeader

from .routes import OFF, CacheRetention, Effort, UnsignedThinking

PresetName = Literal["anthropic", "deepseek", "generic"]

_DISABLED = Effort(thinking="disabled")


def _levels(
    thinking: Literal["enabled", "adaptive"], *names: str
) -> tuple[tuple[str, Effort], ...]:
    levels = [(name, Effort(thinking=thinking, level=name)) for name in names]
    return ((OFF, _DISABLED), *levels)


class Preset(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of a provider; each can be set otherwise in the profile."""

    name: str
    base_url: str | None = None
    base_url_env: str | None = None
    """Variable that replaces `base_url` when the profile gives none."""
    base_url_env_suffix: str = ""
    """Appended to what the variable holds, if it is missing there."""
    api_key_env: str | None = None
    key_header: KeyHeader = "x-api-key"
    efforts: tuple[tuple[str, Effort], ...] = ()
    default_effort: str | None = None
    cache_retention: CacheRetention = "none"
    unsigned_thinking: UnsignedThinking = "drop"
    context_window: int | None = None
    max_tokens: int = 8192
    input_modalities: tuple[str, ...] | None = None
    system_prompt_in_history: bool = False


PRESETS: Mapping[PresetName, Preset] = {
    "anthropic": Preset(
        name="Anthropic",
        base_url="https://api.anthropic.com",
        api_key_env="ANTHROPIC_API_KEY",
        efforts=_levels("adaptive", "low", "medium", "high"),
        cache_retention="short",
        context_window=200_000,
        max_tokens=32_000,
    ),
    "deepseek": Preset(
        name="DeepSeek",
        base_url="https://api.deepseek.com/anthropic",
        base_url_env="DEEPSEEK_BASE_URL",
        base_url_env_suffix="/anthropic",
        api_key_env="DEEPSEEK_API_KEY",
        efforts=_levels("enabled", "low", "high", "max"),
        default_effort="high",
        unsigned_thinking="send",
        context_window=1_000_000,
        max_tokens=256_000,
        input_modalities=("text",),
        system_prompt_in_history=True,
    ),
    "generic": Preset(name="Messages-compatible service"),
}

_BY_ROUTE: Mapping[str, PresetName] = {"deepseek-official": "deepseek"}


def preset_for(route: str, chosen: PresetName | None) -> Preset:
    """The chosen preset, else the one that the route is named after, else the generic one."""
    name = chosen or _BY_ROUTE.get(route)
    if name is None:
        return next((p for key, p in PRESETS.items() if key == route), PRESETS["generic"])
    return PRESETS[name]
