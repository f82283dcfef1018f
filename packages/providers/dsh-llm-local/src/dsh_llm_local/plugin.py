"""The plugin: a local model behind `ctx.llm`, without key and without network."""

from dsh_cordis import Context
from dsh_llm import LlmService

from .adapter import LocalAdapter
from .config import Config
from .models import find_model
from .server import LocalServer

name = "llm-local"


class Needs(Context):
    """What the plugin needs."""

    llm: LlmService


async def apply(ctx: Needs, config: Config) -> None:
    """Start the server, then register its route; both go with the plugin."""
    model = find_model(config.model)
    server = await LocalServer.start(model, config)
    ctx.effect(lambda: server.stop, label="llama.cpp server")
    adapter = LocalAdapter(server.base_url, model, config)
    # Answers that still run are cut first: the server would wait for their last token.
    ctx.effect(lambda: lambda: adapter.aclose(cut=True), label="connections")
    ctx.llm.register_adapter([config.route], adapter)
