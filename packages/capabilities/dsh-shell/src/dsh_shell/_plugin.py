"""The whole capability as one plugin."""

import os

from dsh_cordis import Context

from . import bash_tool, job_tools, sandbox, spill_policy
from ._settings import BashSettings, Settings
from .jobs import JobRegistry
from .runtime import SubprocessRuntime
from .spill import SpillStore


async def apply(ctx: Context, config: Settings) -> None:
    """Mount the runtime and what stands on it.

    The tools wait for the registry and the prompt service; without those, `ctx.subprocess`,
    `ctx.jobs` and `ctx.spill_store` work alone.
    """
    if os.name != "posix":
        ctx.log.warning("shell.unsupported_platform", platform=os.name)
        return
    await ctx.plugin(SubprocessRuntime)
    await ctx.plugin(SpillStore, config.spill_root)
    if config.sandbox is not None:
        await ctx.plugin(sandbox.Sandbox, config.sandbox)
        await ctx.plugin(sandbox.sandbox_context)
    if config.jobs:
        await ctx.plugin(JobRegistry)
        await ctx.plugin(job_tools.job_tools)
    await ctx.plugin(bash_tool.bash_tool, _bash_config(config))
    if config.max_inline_tokens is not None:
        await ctx.plugin(spill_policy.spill_policy, config.max_inline_tokens)


def _bash_config(config: Settings) -> BashSettings:
    # Without the sandbox that was asked for, a command must not run at all.
    required = config.bash.require_sandbox or config.sandbox is not None
    return config.bash.model_copy(update={"require_sandbox": required})
