"""Tools whose parameters depend on whether there is a sandbox."""

from collections.abc import Callable

from dsh_cordis import Context, FiberState, Handle
from dsh_tools import ToolDefinition, ToolRegistry


class _SandboxNeeds(Context):
    sandbox: object
    tools: ToolRegistry


def offer_by_sandbox(
    ctx: Context, tools: ToolRegistry, define: Callable[[bool], ToolDefinition]
) -> None:
    """Register one of two definitions, and the other one when `ctx.sandbox` comes or goes.

    Args:
        ctx: Owns the registration.
        tools: The registry, as `ctx` sees it.
        define: Gives the definition, with or without the parameters that ask for wider access.
    """
    plain: list[Handle] = [tools.register(define(False))]

    def come_back() -> None:
        if ctx.fiber.state is FiberState.ACTIVE:
            plain.append(tools.register(define(False)))

    def with_sandbox(inner: _SandboxNeeds) -> None:
        _ = plain.pop()()
        inner.effect(lambda: come_back, label="tool without sandbox")
        inner.tools.register(define(True))

    _ = ctx.plugin(with_sandbox)
