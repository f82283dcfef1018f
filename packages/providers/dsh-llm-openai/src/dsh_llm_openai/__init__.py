"""Chat-completions adapter for DeepSeek, OpenAI and compatible servers.

The package itself is the plugin: `ctx.plugin(dsh_llm_openai, {"providers": {...}})`.
"""

from .adapter import OpenAiAdapter
from .attempt import Attempt
from .credentials import CredentialLookup
from .errors import ProfileError
from .plugin import apply, name
from .profiles import Config, ModelProfile, Profile

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
