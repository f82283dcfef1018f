"""The plugin: registers the configured routes with `ctx.llm`."""

from collections.abc import Mapping

from dsh_cordis import Context
from dsh_llm import LlmService
from dsh_llm_http.serving import serve

from .adapter import OpenAiAdapter
from .profiles import Config

name = "llm-openai"


class Needs(Context):
    """What the plugin needs."""

    llm: LlmService


async def apply(ctx: Needs, config: Config) -> None:
    """Register all routes together; with the plugin they and their connections go."""
    adapter = OpenAiAdapter(config.providers)
    serve(ctx, ctx.llm, adapter, namespace=name, providers_of=_providers)


def _providers(settings: object) -> Mapping[str, object]:
    config = settings if isinstance(settings, Config) else Config.model_validate(settings or {})
    return config.providers
