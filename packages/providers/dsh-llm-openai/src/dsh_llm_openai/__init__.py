"""Chat-completions adapter for DeepSeek, OpenAI and compatible servers.

The package itself is the plugin: `ctx.plugin(dsh_llm_openai, {"providers": {...}})`.
"""

from typing import TYPE_CHECKING

from dsh_llm_http import Attempt, CredentialLookup, ProfileError

from .adapter import OpenAiAdapter
from .plugin import apply, name

if TYPE_CHECKING:  # pydantic is loaded when a profile is read, not before
    from dsh_llm_http.settings import ModelProfile as ModelProfile

    from .profiles import Config as Config
    from .profiles import Profile as Profile

__all__ = [
    "Attempt",
    "Config",
    "CredentialLookup",
    "ModelProfile",
    "OpenAiAdapter",
    "Profile",
    "ProfileError",
    "apply",
    "name",
]


def __getattr__(attribute: str) -> object:
    if attribute in {"Config", "ModelProfile", "Profile"}:
        from . import profiles

        return getattr(profiles, attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")
