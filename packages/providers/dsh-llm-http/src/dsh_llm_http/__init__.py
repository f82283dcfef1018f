"""HTTP, server-sent events and failure classes shared by the model adapters.

Further documented modules: `settings` (profiles, on pydantic), `transport` (httpx, loaded with the
first request), `classify`, `headers`, `failing`, `fields`, `identity`, `presets`, `text`, `tracks`,
`wire`.
"""

from .adapter import BodyBuilder, HttpAdapter
from .attempt import Attempt, Exchange, Translator
from .credentials import CredentialLookup, environment
from .engine import Engine, Guard, HttpRequest, Reply
from .errors import ProfileError
from .failing import StreamFinishes
from .routes import HttpRoute, KeyHeader, ModelFacts
from .sse import Events, Framer
from .translating import PayloadTranslator

__all__ = [
    "Attempt",
    "BodyBuilder",
    "CredentialLookup",
    "Engine",
    "Events",
    "Exchange",
    "Framer",
    "Guard",
    "HttpAdapter",
    "HttpRequest",
    "HttpRoute",
    "KeyHeader",
    "ModelFacts",
    "PayloadTranslator",
    "ProfileError",
    "Reply",
    "StreamFinishes",
    "Translator",
    "environment",
]
