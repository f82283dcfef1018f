"""The adapter: routes of Messages providers.

Upstream: packages/llm/llm-anthropic/src/adapter.ts.
"""

from collections.abc import Mapping

from typing_extensions import override

from dsh_llm import GenerateOptions
from dsh_llm_http import CredentialLookup, Engine, Exchange, HttpAdapter, environment
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
        routes: dict[str, Route] = {}
        for name, given in providers.items():
            profile = given if isinstance(given, Profile) else Profile.model_validate(given)
            routes[name] = resolve_route(name, profile)
        super().__init__(DISTRIBUTION, routes, credentials=credentials, engine=engine)
        self._builders = {name: BodyBuilder(route) for name, route in routes.items()}

    @override
    def exchange(self, options: GenerateOptions, route: Route) -> Exchange:
        builder = self._builders[route.name]
        headers = request_headers(DISTRIBUTION, route.headers, keep_alive=route.keep_alive)
        headers["anthropic-version"] = PROTOCOL_VERSION
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
