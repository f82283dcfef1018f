"""Chat-completions adapter for DeepSeek, OpenAI and compatible servers."""

from .adapter import OpenAiAdapter
from .attempt import Attempt
from .credentials import CredentialLookup
from .errors import ProfileError
from .profiles import Config, ModelProfile, Profile

__all__ = [
    "Attempt",
    "Config",
    "CredentialLookup",
    "ModelProfile",
    "OpenAiAdapter",
    "Profile",
    "ProfileError",
]
