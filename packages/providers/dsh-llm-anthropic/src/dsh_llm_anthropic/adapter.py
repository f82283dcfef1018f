"""The adapter: routes of Messages providers.

Upstream: packages/llm/llm-anthropic/src/adapter.ts.
"""

from collections.abc import Mapping
from typing import ClassVar

from typing_extensions import override

from dsh_llm import GenerateOptions
from dsh_llm_http import (
    CredentialLookup,
    Engine,
    Exchange,
    HttpAdapter,
    KeyHeader,
    environment,
)
from dsh_llm_http.headers import request_headers

from .profiles import Profile, resolve_route
from .request import BodyBuilder
from .routes import Route
from .stream import ChunkTranslator

DISTRIBUTION = "dsh-llm-anthropic"
PROTOCOL_VERSION = "2023-06-01"


class AnthropicAdapter(HttpAdapter[Route]):
    """Streams from Messages services; usable with `ctx.llm` or on its own.

    Args:
        providers: A profile for each route, as model or as the mapping that makes one.
        credentials: Looks up the keys that profiles name; the environment if left out.
        engine: The HTTP engine; httpx if left out. The adapter closes it.
    """

    def __init__(
        self,
        providers: Mapping[str, Profile | Mapping[str, object]],
        *,
        credentials: CredentialLookup = environment,
        engine: Engine | None = None,
    ) -> None:
        super().__init__(DISTRIBUTION, {}, credentials=credentials, engine=engine)
        self._builders: dict[str, BodyBuilder] = {}
        self.configure(providers)

    @override
    def configure(self, providers: Mapping[str, Profile | Mapping[str, object]]) -> None:
        routes: dict[str, Route] = {}
        for name, given in providers.items():
            profile = given if isinstance(given, Profile) else Profile.model_validate(given)
            routes[name] = resolve_route(name, profile)
        self.restore(routes)

    @override
    def restore(self, routes: Mapping[str, Route]) -> None:
        # A route that stays as it was keeps its builder, with the messages it has encoded.
        self._builders = {
            name: self._builders[name] if self._routes.get(name) == route else BodyBuilder(route)
            for name, route in routes.items()
        }
        self._routes = dict(routes)

    default_key_header: ClassVar[KeyHeader] = "x-api-key"

    @override
    def models_url(self, base_url: str) -> str:
        return f"{base_url}/models" if base_url.endswith("/v1") else f"{base_url}/v1/models"

    @override
    def protocol_headers(self) -> Mapping[str, str]:
        return {"anthropic-version": PROTOCOL_VERSION}

    @override
    def exchange(self, options: GenerateOptions, route: Route) -> Exchange:
        builder = self._builders[route.name]
        headers = request_headers(DISTRIBUTION, route.headers, keep_alive=route.keep_alive)
        headers |= self.protocol_headers()
        return Exchange(
            route=route,
            url=route.endpoint,
            headers=headers,
            body=lambda: builder.build(options),
            key=lambda: self.key(route),
            translator=lambda redact, request_id: ChunkTranslator(
                route.label, redact, request_id, model=options.model
            ),
        )
