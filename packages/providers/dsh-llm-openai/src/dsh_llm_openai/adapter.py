"""The adapter: routes of chat-completions providers.

Upstream: packages/llm/llm-openai/src/adapter.ts.
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


class OpenAiAdapter(HttpAdapter[Route, "Profile"]):
    """Streams from chat-completions services; usable with `ctx.llm` or on its own.

    Args:
        providers: A profile for each route, as model or as the mapping that makes one.
        credentials: Looks up the keys that profiles name; the environment if left out.
        engine: The HTTP engine; httpx if left out. The adapter closes it.
    """

    distribution = "dsh-llm-openai"

    @override
    def resolve(self, name: str, profile: "Profile | Mapping[str, object]") -> Route:
        from .profiles import Profile, resolve_route  # see above

        return resolve_route(name, Profile.read(profile))

    @override
    def endpoint(self, route: Route) -> str:
        return f"{route.base_url}/chat/completions"

    @override
    def builder(self, route: Route) -> BodyBuilder:
        return BodyBuilder(route)

    @override
    def translator(self, options: GenerateOptions, finishes: StreamFinishes) -> Translator:
        return ChunkTranslator(finishes)
