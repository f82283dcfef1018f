"""Messages API adapter for Anthropic and compatible servers.

The package itself is the plugin: `ctx.plugin(dsh_llm_anthropic, {"providers": {...}})`.
"""

from dsh_llm_http import Attempt, CredentialLookup, ProfileError
from dsh_llm_http.settings import ModelProfile

from .adapter import AnthropicAdapter
from .plugin import apply, name
from .profiles import Config, EffortProfile, Profile

__all__ = [
    "AnthropicAdapter",
    "Attempt",
    "Config",
    "CredentialLookup",
    "EffortProfile",
    "ModelProfile",
    "Profile",
    "ProfileError",
    "apply",
    "name",
]
