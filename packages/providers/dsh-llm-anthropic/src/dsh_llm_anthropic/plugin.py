"""The plugin: registers the configured routes with `ctx.llm`."""

from typing import TYPE_CHECKING

from dsh_cordis import Context
from dsh_llm import LlmService
from dsh_llm_http.serving import serve

from .adapter import AnthropicAdapter

if TYPE_CHECKING:  # pydantic is loaded when somebody mounts or configures the plugin, not before
    from .profiles import Config

name = "llm-anthropic"


class Needs(Context):
    """What the plugin needs."""

    llm: LlmService


async def apply(ctx: Needs, config: "Config") -> None:
    """Register all routes together; with the plugin they and their connections go."""
    from .profiles import Config  # see above

    adapter = AnthropicAdapter(config.providers)
    serve(ctx, ctx.llm, adapter, namespace=name, config=Config)
