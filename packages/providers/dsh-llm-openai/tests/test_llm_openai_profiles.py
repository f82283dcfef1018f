"""Profiles and presets (L90, L118-L121, L153)."""

from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from dsh_llm_openai import Config, OpenAiAdapter, Profile, ProfileError
from dsh_llm_openai.presets import PRESETS
from dsh_llm_openai.profiles import resolve_route
from dsh_llm_openai.routes import Route


def route(name: str = "x", **profile: Any) -> Route:  # any settings of a profile
    return resolve_route(name, Profile.model_validate(profile))


def adapter(name: str = "x", **profile: Any) -> OpenAiAdapter:  # as above
    return OpenAiAdapter({name: {"base_url": "https://h/v1", **profile}})


@pytest.mark.parametrize(
    "url",
    ["", "api.example.com", "/v1", "ftp://h/v1", "https://", "https://h/v1?a=1", "http://h#x"],
)
def test_L90_the_base_url_is_absolute_http(url: str) -> None:
    with pytest.raises(ValidationError):
        Profile(base_url=url)


def test_L102_a_base_url_with_a_password_is_refused_without_showing_it() -> None:
    with pytest.raises(ValidationError) as caught:
        Profile(base_url="https://user:secret@h/v1")
    assert "user info" in str(caught.value)
    assert "secret" not in str(caught.value.errors()[0]["msg"])


def test_L90_trailing_slashes_go_and_path_segments_stay() -> None:
    assert route(base_url="https://h:1/a/v1//").base_url == "https://h:1/a/v1"


@pytest.mark.parametrize("name", ["User-Agent", "authorization", "Content-Type", "ACCEPT"])
def test_L91_headers_of_the_adapter_cannot_be_replaced(name: str) -> None:
    with pytest.raises(ValidationError, match="remove it"):
        Profile(headers={name: "x"})


@pytest.mark.parametrize(("name", "text"), [("x y", "a"), ("x", "a\nb"), ("x", "ü"), ("x", "")])
def test_headers_that_cannot_be_sent_are_refused_without_their_value(name: str, text: str) -> None:
    with pytest.raises(ValidationError, match="no header can be sent"):
        Profile(headers={name: text})


@pytest.mark.parametrize("limit", [0, -1, float("inf"), float("nan"), 2_147_483_648])
def test_L92_the_idle_limit_is_bounded(limit: float) -> None:
    with pytest.raises(ValidationError):
        Profile(stream_idle_timeout_ms=limit)


def test_L118_keys_may_be_snake_or_camel_case_and_unknown_ones_are_refused() -> None:
    camel = Profile.model_validate(
        {"baseURL": "https://h", "apiKeyEnv": "K", "systemRole": "system"}
    )
    assert camel == Profile(base_url="https://h", api_key_env="K", system_role="system")
    for key, value in (("apiKey", "sk"), ("systemRole", "user"), ("preset", "acme")):
        with pytest.raises(ValidationError):
            Profile.model_validate({"base_url": "https://h", key: value})


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "generic"])
def test_L118_a_route_named_after_a_preset_takes_it(name: str) -> None:
    named = route(name)
    assert named.base_url == PRESETS[name].base_url  # type: ignore[index]  # one of its own keys
    assert route("mine", preset=name) == route_renamed(named)


def route_renamed(found: Route) -> Route:
    return msgspec.structs.replace(found, name="mine")


def test_L118_a_generic_profile_needs_a_base_url() -> None:
    with pytest.raises(ProfileError, match=r"providers\.x.*base_url"):
        route()


async def test_L119_the_deepseek_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_BASE_URL", "http://127.0.0.1:9/beta/")
    found = route("deepseek-official")
    assert (found.label, found.base_url) == ("DeepSeek", "http://127.0.0.1:9/beta")
    assert found.api_key_env == "DEEPSEEK_API_KEY"
    assert route("deepseek", base_url="https://h").base_url == "https://h"
    facts = await OpenAiAdapter({"deepseek-official": {}}).resolve_model("deepseek-official", "new")
    assert facts.context is not None
    assert (facts.context.context_window, facts.default_max_tokens) == (1_000_000, 256_000)
    assert facts.input_modalities == ("text",)
    assert facts.reasoning is not None
    assert [effort.id for effort in facts.reasoning.efforts] == ["off", "low", "high", "max"]
    assert facts.reasoning.default_effort == "high"
    monkeypatch.setenv("DEEPSEEK_BASE_URL", "nowhere")
    with pytest.raises(ProfileError, match="DEEPSEEK_BASE_URL"):
        route("deepseek")


async def test_L119_a_deployment_that_cannot_think_offers_off_alone() -> None:
    facts = await OpenAiAdapter({"deepseek": {"thinking": False}}).resolve_model("deepseek", "m")
    assert facts.reasoning is not None
    assert [effort.id for effort in facts.reasoning.efforts] == ["off"]


async def test_L120_without_a_thinking_format_there_are_no_efforts() -> None:
    assert (await adapter(efforts=["low"]).resolve_model("x", "m")).reasoning is None


async def test_L121_the_cap_of_the_model_wins_over_the_cap_of_the_profile() -> None:
    found = adapter(max_tokens=10, models={"a": {"max_tokens": 5, "name": "A"}, "b": {}})
    assert [
        (await found.resolve_model("x", model)).default_max_tokens for model in ("a", "b", "c")
    ] == [5, 10, 10]
    assert (await adapter().resolve_model("x", "m")).default_max_tokens is None
    assert [(m.id, m.name) for m in await found.list_models("x")] == [("a", "A"), ("b", "b")]


async def test_facts_of_a_declared_model() -> None:
    model = {
        "efforts": ["low", "high"],
        "default_effort": "low",
        "context_window": 7,
        "input_modalities": ["text"],
        "system_prompt_update": "in-history",
    }
    found = adapter(thinking_format="effort", models={"a": model})
    facts = await found.resolve_model("x", "a")
    assert facts.reasoning is not None
    assert facts.reasoning.default_effort == "low"
    assert facts.system_prompt_update == "in-history"
    assert facts.context is not None
    assert facts.context.context_window == 7
    with pytest.raises(ProfileError, match="default_effort"):
        adapter(thinking_format="effort", models={"a": {**model, "default_effort": "max"}})


def test_a_retry_policy_is_checked_and_passed_on() -> None:
    assert adapter(retry={"maxRetries": 2}).provider_retry_policy("x") == {"maxRetries": 2}
    assert adapter().provider_retry_policy("x") is None
    with pytest.raises(ValueError, match=r"providers\.x\.retry"):
        adapter(retry={"maxRetries": -1})


def test_L153_no_provider_is_legal() -> None:
    assert Config().providers == {}
    assert OpenAiAdapter({}).providers == []
