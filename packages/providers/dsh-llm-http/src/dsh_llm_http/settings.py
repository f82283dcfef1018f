"""Settings that the profiles of both protocols share. Imports pydantic, so `__init__` does not."""

import os
import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator
from pydantic.alias_generators import to_camel

from dsh_brand import JsonValue, freeze_object
from dsh_llm import LlmModelReasoningInfo, LlmReasoningEffortInfo, resolve_retry_policy

from .errors import ProfileError
from .headers import RESERVED
from .routes import ModelFacts

_MAX_DELAY_MS = 2_147_483_647
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_TEXT = re.compile(r"[!-~](?:[ \t!-~]*[!-~])?")
Count = Annotated[int, Field(gt=0, lt=2**53)]
Name = Annotated[str, Field(min_length=1)]


class Edge(BaseModel):
    """Settings as people write them, in snake_case or camelCase."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, validate_by_name=True
    )


class ModelProfile(Edge):
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
    system_prompt_update: Literal["in-history", "leading"] | None = None
    """`in-history`: the model reads later system messages as a new prompt."""


class RouteProfile(Edge):
    """How one provider is reached; each protocol adds its dialect."""

    name: Name | None = None
    """Shown to people."""
    base_url: Name | None = Field(
        default=None, validation_alias=AliasChoices("base_url", "baseURL", "baseUrl")
    )
    """Absolute http(s) URL, a prefix: the endpoint's path is appended."""
    api_key_env: Name | None = None
    """Variable that holds the key. Never the key itself."""
    anonymous: bool = False
    """Send no key even if the preset names one."""
    headers: Mapping[Name, str] = Field(default={}, repr=False)
    """Further headers of every request."""
    stream_idle_timeout_ms: Annotated[float, Field(gt=0, le=_MAX_DELAY_MS)] = 300_000
    """Longest silence on the network."""
    keep_alive: bool | None = None
    """Reuse connections; off for servers that close them without notice."""
    default_effort: Name | None = None
    context_window: Count | None = None
    max_tokens: Count | None = None
    models: Mapping[Name, ModelProfile] = {}
    """Declared models by id; others pass through."""
    retry: Mapping[str, object] | None = None
    """Retry policy: `mode`, `maxRetries`, `retryableCodes`, `backoff`."""

    @classmethod
    def read(cls, given: Self | Mapping[str, object]) -> Self:
        """A profile, as model or as the mapping that makes one."""
        return given if isinstance(given, cls) else cls.model_validate(given)

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


def route_base_url(
    route: str, profile: RouteProfile, preset_url: str | None, variable: str | None
) -> str:
    """Where a route leads: the profile's URL, else that of the variable, else the preset's.

    Raises:
        ProfileError: None of them gives a usable one.
    """
    if profile.base_url is not None:
        return profile.base_url
    found = os.environ.get(variable) if variable else None
    if found:
        try:
            return checked_base_url(found)
        except ValueError as error:
            raise ProfileError(f"environment variable {variable}: {error}") from error
    if preset_url is None:
        raise ProfileError(
            f"providers.{route}: no `base_url`; give one, or choose a `preset` that knows it"
        )
    return preset_url


def model_facts(
    model_id: str,
    model: ModelProfile,
    unlisted: ModelFacts,
    reasoning: LlmModelReasoningInfo | None,
) -> ModelFacts:
    """The facts of a declared model; what it leaves out is that of its route."""
    update = model.system_prompt_update
    in_history = unlisted.system_prompt_in_history if update is None else update == "in-history"
    return ModelFacts(
        id=model_id,
        name=model.name or model_id,
        description=model.description,
        context_window=model.context_window or unlisted.context_window,
        max_tokens=model.max_tokens or unlisted.max_tokens,
        input_modalities=model.input_modalities or unlisted.input_modalities,
        reasoning=reasoning,
        system_prompt_in_history=in_history,
    )


def reasoning_info(
    path: str, efforts: tuple[str, ...], default: str | None
) -> LlmModelReasoningInfo | None:
    """The efforts on offer; `None` without any.

    Raises:
        ProfileError: The default is not one of them.
    """
    if not efforts:
        return None
    if default is not None and default not in efforts:
        raise ProfileError(f"{path}: `default_effort` {default!r} is not one of {list(efforts)}")
    infos = tuple(LlmReasoningEffortInfo(effort, effort.capitalize()) for effort in efforts)
    return LlmModelReasoningInfo(infos, default)


def retry_policy(route: str, profile: RouteProfile) -> Mapping[str, JsonValue] | None:
    """The profile's retry policy, checked.

    Raises:
        RetryPolicyError: It is none.
    """
    if profile.retry is None:
        return None
    policy = freeze_object(profile.retry)
    resolve_retry_policy(policy, path=f"providers.{route}.retry")
    return policy
