"""The whole capability as one plugin."""

from dsh_cordis import Context

from . import image_tool, policy, search_tool, tools
from ._settings import Settings
from .service import FsService


async def apply(ctx: Context, config: Settings) -> None:
    """Mount the file service, the observation policy and the tools.

    The tools wait for the registry and the prompt service; without those, `ctx.fs` works alone.
    `read_image` waits for attachments and models too.
    """
    await ctx.plugin(FsService, config)
    if config.require_read:
        await ctx.plugin(policy.observation_policy)
    await ctx.plugin(tools.file_tools)
    await ctx.plugin(image_tool.image_tool)
    await ctx.plugin(search_tool.search_tools, config)
