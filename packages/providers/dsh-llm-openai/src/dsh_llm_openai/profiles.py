"""Configuration: one profile per route.

Upstream: packages/llm/llm-openai/src/config.ts.
"""

from collections.abc import Mapping

from dsh_llm import LlmModelReasoningInfo
from dsh_llm_http import ModelFacts
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
from .routes import MaxTokensField, ReasoningField, Route, SystemRole, ThinkingFormat


class Profile(RouteProfile):
    """How one provider is reached and which dialect it speaks."""

    preset: PresetName | None = None
    """Defaults of a named provider; without it, the route's own name if it is one of them."""
    system_role: SystemRole | None = None
    max_tokens_field: MaxTokensField | None = None
    reasoning_field: ReasoningField | None = None
    """Where reasoning of earlier turns is sent back."""
    stream_usage: bool | None = None
    """Ask for token counts; off for servers that refuse `stream_options`."""
    strict_tools: bool = False
    """Mark tools as strict whose schema already is."""
    thinking_format: ThinkingFormat | None = None
    thinking: bool = True
    """Off: the deployment cannot think, only the effort `off` is offered."""
    efforts: tuple[Name, ...] | None = None


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
    thinking_format = profile.thinking_format or preset.thinking_format
    unlisted = ModelFacts(
        id="",
        name="",
        context_window=profile.context_window or preset.context_window,
        max_tokens=profile.max_tokens or preset.max_tokens,
        input_modalities=preset.input_modalities,
        reasoning=_profile_reasoning(name, profile, preset, thinking_format),
    )
    return Route(
        name=name,
        label=profile.name or preset.name,
        base_url=route_base_url(name, profile, preset.base_url, preset.base_url_env),
        api_key_env=None if profile.anonymous else profile.api_key_env or preset.api_key_env,
        headers=dict(profile.headers),
        idle_s=profile.stream_idle_timeout_ms / 1000,
        system_role=profile.system_role or preset.system_role,
        max_tokens_field=profile.max_tokens_field or preset.max_tokens_field,
        reasoning_field=profile.reasoning_field or preset.reasoning_field,
        stream_usage=preset.stream_usage if profile.stream_usage is None else profile.stream_usage,
        keep_alive=preset.keep_alive if profile.keep_alive is None else profile.keep_alive,
        strict_tools=profile.strict_tools,
        thinking_format=thinking_format,
        models={
            model_id: _model_facts(name, model_id, model, unlisted, thinking_format)
            for model_id, model in profile.models.items()
        },
        unlisted=unlisted,
        retry=retry_policy(name, profile),
    )


def _model_facts(
    route: str,
    model_id: str,
    model: ModelProfile,
    unlisted: ModelFacts,
    thinking_format: ThinkingFormat,
) -> ModelFacts:
    reasoning = unlisted.reasoning
    if model.efforts is not None or model.default_effort is not None:
        known = tuple(e.id for e in reasoning.efforts) if reasoning is not None else ()
        efforts = known if model.efforts is None else model.efforts
        path = f"providers.{route}.models.{model_id}"
        reasoning = _reasoning(path, efforts, model.default_effort, thinking_format)
    return model_facts(model_id, model, unlisted, reasoning)


def _profile_reasoning(
    route: str, profile: Profile, preset: Preset, thinking_format: ThinkingFormat
) -> LlmModelReasoningInfo | None:
    path = f"providers.{route}"
    if thinking_format == "deepseek" and not profile.thinking:
        return _reasoning(path, ("off",), "off", thinking_format)
    if profile.efforts is None:
        default = profile.default_effort or preset.default_effort
        return _reasoning(path, preset.efforts, default, thinking_format)
    return _reasoning(path, profile.efforts, profile.default_effort, thinking_format)


def _reasoning(
    path: str, efforts: tuple[str, ...], default: str | None, thinking_format: ThinkingFormat
) -> LlmModelReasoningInfo | None:
    return None if thinking_format == "none" else reasoning_info(path, efforts, default)
