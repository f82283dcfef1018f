"""The adapter: routes of Messages providers.

Upstream: packages/llm/llm-anthropic/src/adapter.ts.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from typing_extensions import override

from dsh_llm import GenerateOptions
from dsh_llm_http import HttpAdapter, StreamFinishes, Translator

from .request import BodyBuilder
from .routes import Route
from .stream import ChunkTranslator

if TYPE_CHECKING:  # pydantic is loaded when a profile is read, not before
    from .profiles import Profile

PROTOCOL_VERSION = "2023-06-01"


class AnthropicAdapter(HttpAdapter[Route, "Profile"]):
    """Streams from Messages services; usable with `ctx.llm` or on its own.

    Args:
        providers: A profile for each route, as model or as the mapping that makes one.
        credentials: Looks up the keys that profiles name; the environment if left out.
        engine: The HTTP engine; httpx if left out. The adapter closes it.
    """

    distribution = "dsh-llm-anthropic"
    default_key_header = "x-api-key"

    @override
    def resolve(self, name: str, profile: "Profile | Mapping[str, object]") -> Route:
        from .profiles import Profile, resolve_route  # see above

        return resolve_route(name, Profile.read(profile))

    @override
    def endpoint(self, route: Route) -> str:
        return _versioned(route.base_url, "messages")

    @override
    def models_url(self, base_url: str) -> str:
        return _versioned(base_url, "models")

    @override
    def protocol_headers(self) -> Mapping[str, str]:
        return {"anthropic-version": PROTOCOL_VERSION}

    @override
    def builder(self, route: Route) -> BodyBuilder:
        return BodyBuilder(route)

    @override
    def translator(self, options: GenerateOptions, finishes: StreamFinishes) -> Translator:
        return ChunkTranslator(finishes, options.model)


def _versioned(base_url: str, path: str) -> str:
    """A path of the protocol's version; a base that ends in it is not doubled."""
    return f"{base_url}/{path}" if base_url.endswith("/v1") else f"{base_url}/v1/{path}"
