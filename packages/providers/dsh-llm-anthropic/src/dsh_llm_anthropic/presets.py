"""What is known about named providers (L143, L144, L179)."""

from collections.abc import Mapping
from typing import Literal

from dsh_llm_http import KeyHeader
from dsh_llm_http.presets import HttpPreset

from .routes import OFF, CacheRetention, Effort, UnsignedThinking

PresetName = Literal["anthropic", "deepseek", "generic"]

_DISABLED = Effort(thinking="disabled")


def _levels(
    thinking: Literal["enabled", "adaptive"], *names: str
) -> tuple[tuple[str, Effort], ...]:
    levels = [(name, Effort(thinking=thinking, level=name)) for name in names]
    return ((OFF, _DISABLED), *levels)


class Preset(HttpPreset, frozen=True, kw_only=True):
    """Defaults of a Messages provider."""

    base_url_env_suffix: str = ""
    """Appended to what the variable holds, if it is missing there."""
    key_header: KeyHeader = "x-api-key"
    efforts: tuple[tuple[str, Effort], ...] = ()
    cache_retention: CacheRetention = "none"
    unsigned_thinking: UnsignedThinking = "drop"
    max_tokens: int = 8192
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
