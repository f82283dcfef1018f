"""Configuration: one profile per route.

Upstream: packages/llm/llm-anthropic/src/config.ts.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from dsh_llm import LlmModelReasoningInfo
from dsh_llm_http import KeyHeader, ModelFacts, ProfileError
from dsh_llm_http.presets import preset_for
from dsh_llm_http.settings import (
    Edge,
    ModelProfile,
    Name,
    RouteProfile,
    model_facts,
    reasoning_info,
    retry_policy,
    route_base_url,
)

from .presets import PRESETS, Preset, PresetName
from .routes import MIN_BUDGET_TOKENS, OFF, CacheRetention, Effort, Route, UnsignedThinking

_OWN_HEADERS = frozenset({"x-api-key", "anthropic-version"})


class EffortProfile(Edge):
    """What an effort asks for: a budget of thinking tokens, or a level that the model weighs."""

    budget_tokens: Annotated[int, Field(ge=MIN_BUDGET_TOKENS, lt=2**53)] | None = None
    """Most tokens of thinking; a request with a smaller output limit lowers it."""
    level: Name | None = None
    """Sent as `output_config.effort`."""
    thinking: Literal["enabled", "adaptive", "disabled"] | None = None
    """Left out: `enabled` with a budget, `adaptive` with a level."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.budget_tokens is None) == (self.level is None) and self.thinking != "disabled":
            raise ValueError("give either `budget_tokens` or `level`")
        return self

    def effort(self) -> Effort:
        """The same, as the route keeps it."""
        kind = self.thinking or ("adaptive" if self.budget_tokens is None else "enabled")
        return Effort(thinking=kind, budget_tokens=self.budget_tokens, level=self.level)


class Profile(RouteProfile):
    """How one provider is reached and which dialect of the Messages protocol it speaks."""

    preset: PresetName | None = None
    """Defaults of a named provider; without it, the route's own name if it is one of them."""
    key_header: KeyHeader | None = None
    """`x-api-key`, or `authorization` for a bearer token."""
    efforts: Mapping[Name, EffortProfile] | None = None
    """Reasoning efforts by name; `off` is offered besides. Empty: the models have none."""
    cache_retention: CacheRetention | None = None
    """Marks for the provider's prompt cache: `none`, `short` or `long`."""
    unsigned_thinking: UnsignedThinking | None = None
    """`send`: reasoning goes back also without a signature."""
    system_prompt_update: Literal["in-history", "leading"] | None = None
    """What holds for models that are not declared."""

    @field_validator("headers")
    @classmethod
    def _check_own_headers(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        taken = sorted(name for name in value if name.lower() in _OWN_HEADERS)
        if taken:
            raise ValueError(f"the adapter itself sets {', '.join(taken)}; remove it here")
        return value


class Config(Edge):
    """Configuration of the plugin: a profile for each route."""

    providers: Mapping[Name, Profile] = {}
    """Route to profile; no route is legal and registers nothing."""


def resolve_route(name: str, profile: Profile) -> Route:
    """Join a profile with its preset.

    Raises:
        ProfileError: The two together do not make a usable route.
    """
    preset = preset_for(PRESETS, name, profile.preset)
    efforts = _efforts(profile, preset)
    max_tokens = profile.max_tokens or preset.max_tokens
    unlisted = ModelFacts(
        id="",
        name="",
        context_window=profile.context_window or preset.context_window,
        max_tokens=max_tokens,
        input_modalities=preset.input_modalities,
        reasoning=reasoning_info(
            f"providers.{name}", tuple(efforts), _default_effort(profile, preset)
        ),
        system_prompt_in_history=_in_history(profile, preset),
    )
    return Route(
        name=name,
        label=profile.name or preset.name,
        base_url=_base_url(name, profile, preset),
        api_key_env=None if profile.anonymous else profile.api_key_env or preset.api_key_env,
        key_header=profile.key_header or preset.key_header,
        headers=dict(profile.headers),
        idle_s=profile.stream_idle_timeout_ms / 1000,
        keep_alive=profile.keep_alive is not False,
        efforts=efforts,
        cache_retention=profile.cache_retention or preset.cache_retention,
        unsigned_thinking=profile.unsigned_thinking or preset.unsigned_thinking,
        default_max_tokens=max_tokens,
        models={
            model_id: _model_facts(name, model_id, model, unlisted, efforts)
            for model_id, model in profile.models.items()
        },
        unlisted=unlisted,
        retry=retry_policy(name, profile),
    )


def _base_url(name: str, profile: Profile, preset: Preset) -> str:
    url = route_base_url(name, profile, preset.base_url, preset.base_url_env)
    given = profile.base_url is not None or url.endswith(preset.base_url_env_suffix)
    return url if given else url + preset.base_url_env_suffix


def _efforts(profile: Profile, preset: Preset) -> Mapping[str, Effort]:
    if profile.efforts is None:
        return dict(preset.efforts)
    named = {name: effort.effort() for name, effort in profile.efforts.items()}
    return {OFF: Effort(thinking="disabled"), **named} if named else {}


def _default_effort(profile: Profile, preset: Preset) -> str | None:
    if profile.default_effort is not None or profile.efforts is not None:
        return profile.default_effort
    return preset.default_effort


def _in_history(profile: Profile, preset: Preset) -> bool:
    if profile.system_prompt_update is None:
        return preset.system_prompt_in_history
    return profile.system_prompt_update == "in-history"


def _model_facts(
    route: str,
    model_id: str,
    model: ModelProfile,
    unlisted: ModelFacts,
    known: Mapping[str, Effort],
) -> ModelFacts:
    path = f"providers.{route}.models.{model_id}"
    unknown = [effort for effort in model.efforts or () if effort not in known]
    if unknown:
        raise ProfileError(
            f"{path}: the efforts {unknown} are not declared in `providers.{route}.efforts`, "
            f"which has {list(known) or 'none'}"
        )
    return model_facts(model_id, model, unlisted, _model_reasoning(path, model, unlisted, known))


def _model_reasoning(
    path: str, model: ModelProfile, unlisted: ModelFacts, known: Mapping[str, Effort]
) -> LlmModelReasoningInfo | None:
    if model.efforts is None and model.default_effort is None:
        return unlisted.reasoning
    efforts = tuple(known) if model.efforts is None else model.efforts
    return reasoning_info(path, efforts, model.default_effort)
