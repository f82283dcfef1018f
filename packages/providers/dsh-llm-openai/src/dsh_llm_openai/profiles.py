"""Configuration: one profile per route.

Upstream: packages/llm/llm-openai/src/config.ts.
"""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from dsh_brand import JsonValue, freeze_object
from dsh_llm import (
    LlmModelReasoningInfo,
    LlmReasoningEffortInfo,
    resolve_retry_policy,
)

from .errors import ProfileError
from .headers import RESERVED
from .presets import Preset, PresetName, preset_for
from .routes import (
    MaxTokensField,
    ModelFacts,
    ReasoningField,
    Route,
    SystemRole,
    ThinkingFormat,
)

_MAX_DELAY_MS = 2_147_483_647
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_TEXT = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?")
Count = Annotated[int, Field(gt=0, lt=2**53)]
Name = Annotated[str, Field(min_length=1)]


class _Edge(BaseModel):
    """Settings as people write them, in snake_case or camelCase."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True
    )


class ModelProfile(_Edge):
    """What is known about one model; unset fields come from the profile of its route."""

    name: Name | None = None
    """Shown to people; the id if left out."""
    description: str | None = None
    context_window: Count | None = None
    """In tokens."""
    max_tokens: Count | None = None
    """Output cap, sent with every request that gives none."""
    input_modalities: tuple[Name, ...] | None = None
    efforts: tuple[Name, ...] | None = None
    """Reasoning efforts; an empty list says that the model has none."""
    default_effort: Name | None = None
    system_prompt_update: Literal["in-history"] | None = None
    """The model reads later system messages as a new prompt."""


class Profile(_Edge):
    """How one provider is reached and which dialect it speaks."""

    preset: PresetName | None = None
    """Defaults of a named provider; without it, the route's own name if it is one of them."""
    name: Name | None = None
    """Shown to people."""
    base_url: Name | None = Field(
        default=None, validation_alias=AliasChoices("base_url", "baseURL", "baseUrl")
    )
    """Absolute http(s) URL; `/chat/completions` is appended."""
    api_key_env: Name | None = None
    """Variable that holds the key. Never the key itself."""
    anonymous: bool = False
    """Send no key even if the preset names one."""
    headers: Mapping[Name, str] = {}
    """Further headers of every request."""
    stream_idle_timeout_ms: Annotated[float, Field(gt=0, le=_MAX_DELAY_MS)] = 300_000
    """Longest silence on the network."""
    system_role: SystemRole | None = None
    max_tokens_field: MaxTokensField | None = None
    reasoning_field: ReasoningField | None = None
    """Where reasoning of earlier turns is sent back."""
    stream_usage: bool | None = None
    """Ask for token counts; off for servers that refuse `stream_options`."""
    keep_alive: bool | None = None
    """Reuse connections; off for servers that close them without notice."""
    strict_tools: bool = False
    """Mark tools as strict whose schema already is."""
    thinking_format: ThinkingFormat | None = None
    thinking: bool = True
    """Off: the deployment cannot think, only the effort `off` is offered."""
    efforts: tuple[Name, ...] | None = None
    default_effort: Name | None = None
    context_window: Count | None = None
    max_tokens: Count | None = None
    models: Mapping[Name, ModelProfile] = {}
    """Declared models by id; others pass through."""
    retry: Mapping[str, object] | None = None
    """Retry policy: `mode`, `maxRetries`, `retryableCodes`, `backoff`."""

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, value: str | None) -> str | None:
        return None if value is None else checked_base_url(value)

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, value: Mapping[str, str]) -> Mapping[str, str]:
        taken = sorted(name for name in value if name.lower() in RESERVED)
        if taken:
            raise ValueError(f"the adapter itself sets {', '.join(taken)}; remove it here")
        for name, text in value.items():
            if _HEADER_NAME.fullmatch(name) is None or _HEADER_TEXT.fullmatch(text) is None:
                raise ValueError(f"no header can be sent as {name!r} with this value")
        return value


class Config(_Edge):
    """Configuration of the plugin: a profile for each route."""

    providers: Mapping[Name, Profile] = {}
    """Route to profile; no route is legal and registers nothing."""


def checked_base_url(value: str) -> str:
    """The URL without trailing slashes.

    Raises:
        ValueError: Not an absolute http(s) URL, or with user info, query or fragment.
    """
    parts = urlsplit(value)
    if "@" in parts.netloc:
        # Without the value: it holds a secret, and libraries log URLs.
        raise ValueError("the URL holds user info; name a variable as `api_key_env` instead")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{value!r} is not an absolute http(s) URL")
    if parts.query or parts.fragment:
        raise ValueError(f"{value!r} has a query or fragment; only a prefix of the path is kept")
    return value.rstrip("/")


def resolve_route(name: str, profile: Profile) -> Route:
    """Join a profile with its preset.

    Raises:
        ProfileError: The two together do not make a usable route.
    """
    preset = preset_for(name, profile.preset)
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
        base_url=_base_url(name, profile, preset),
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
        retry=_retry(name, profile),
    )


def _base_url(name: str, profile: Profile, preset: Preset) -> str:
    if profile.base_url is not None:
        return profile.base_url
    found = os.environ.get(preset.base_url_env) if preset.base_url_env else None
    if found:
        try:
            return checked_base_url(found)
        except ValueError as error:
            raise ProfileError(f"environment variable {preset.base_url_env}: {error}") from error
    if preset.base_url is None:
        raise ProfileError(
            f"providers.{name}: no `base_url`; give one, or choose a `preset` that knows it"
        )
    return preset.base_url


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
    return ModelFacts(
        id=model_id,
        name=model.name or model_id,
        description=model.description,
        context_window=model.context_window or unlisted.context_window,
        max_tokens=model.max_tokens or unlisted.max_tokens,
        input_modalities=model.input_modalities or unlisted.input_modalities,
        reasoning=reasoning,
        system_prompt_in_history=model.system_prompt_update == "in-history",
    )


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
    if thinking_format == "none" or not efforts:
        return None
    if default is not None and default not in efforts:
        raise ProfileError(f"{path}: `default_effort` {default!r} is not one of {list(efforts)}")
    infos = tuple(LlmReasoningEffortInfo(effort, effort.capitalize()) for effort in efforts)
    return LlmModelReasoningInfo(infos, default)


def _retry(name: str, profile: Profile) -> Mapping[str, JsonValue] | None:
    if profile.retry is None:
        return None
    policy = freeze_object(profile.retry)
    resolve_retry_policy(policy, path=f"providers.{name}.retry")
    return policy
