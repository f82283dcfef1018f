"""The plugin: registers the configured routes with `ctx.llm`."""

from dsh_cordis import Context
from dsh_llm import LlmService

from .adapter import AnthropicAdapter
from .profiles import Config

name = "llm-anthropic"


class Needs(Context):
    """What the plugin needs."""

    llm: LlmService


async def apply(ctx: Needs, config: Config) -> None:
    """Register all routes together; with the plugin they and their connections go."""
    adapter = AnthropicAdapter(config.providers)
    ctx.effect(lambda: adapter.aclose, label="connections")
    if config.providers:
        ctx.llm.register_adapter(list(config.providers), adapter)
