"""The plugin: registers the configured routes with `ctx.llm`."""

from dsh_cordis import Context
from dsh_llm import LlmService
from dsh_llm_http.serving import serve

from .adapter import AnthropicAdapter
from .profiles import Config

name = "llm-anthropic"


class Needs(Context):
    """What the plugin needs."""

    llm: LlmService


async def apply(ctx: Needs, config: Config) -> None:
    """Register all routes together; with the plugin they and their connections go."""
    adapter = AnthropicAdapter(config.providers)
    serve(ctx, ctx.llm, adapter, namespace=name, config=Config)
