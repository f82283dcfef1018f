"""HTTP, server-sent events and failure classes shared by the model adapters.

Further documented modules: `settings` (profiles, on pydantic), `transport` (httpx, loaded with the
first request), `classify`, `headers`, `text`, `failing`, `wire`, `identity`.
"""

from .adapter import HttpAdapter
from .attempt import Attempt, Exchange, Translator
from .credentials import CredentialLookup, environment
from .engine import Engine, Guard, HttpRequest, Reply
from .errors import ProfileError
from .routes import HttpRoute, KeyHeader, ModelFacts
from .sse import Frame, Framer

__all__ = [
    "Attempt",
    "CredentialLookup",
    "Engine",
    "Exchange",
    "Frame",
    "Framer",
    "Guard",
    "HttpAdapter",
    "HttpRequest",
    "HttpRoute",
    "KeyHeader",
    "ModelFacts",
    "ProfileError",
    "Reply",
    "Translator",
    "environment",
]
