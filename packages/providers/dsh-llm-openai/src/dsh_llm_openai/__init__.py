"""Chat-completions adapter for DeepSeek, OpenAI and compatible servers.

The package itself is the plugin: `ctx.plugin(dsh_llm_openai, {"providers": {...}})`.
"""

from dsh_llm_http import Attempt, CredentialLookup, ProfileError
from dsh_llm_http.settings import ModelProfile

from .adapter import OpenAiAdapter
from .plugin import apply, name
from .profiles import Config, Profile

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
