"""Tools whose definition depends on whether a service is there."""

from collections.abc import Callable

from dsh_cordis import Context, FiberState, Handle

from .registry import ToolRegistry
from .types import ToolDefinition


def offer_by_service(
    ctx: Context, tools: ToolRegistry, key: str, define: Callable[[bool], ToolDefinition]
) -> None:
    """Register one of two definitions, and the other one when a service comes or goes.

    Args:
        ctx: Owns the registration.
        tools: The registry, as `ctx` sees it.
        key: The service; it may be absent, come later, and go again.
        define: Gives the definition for the service being there (true) or absent.
    """
    plain: list[Handle] = [tools.register(define(False))]

    def come_back() -> None:
        if ctx.fiber.state is FiberState.ACTIVE:
            plain.append(tools.register(define(False)))

    def with_service(inner: Context) -> None:
        plain.pop()()
        inner.effect(lambda: come_back, label=f"tool without {key}")
        inner.tools.register(define(True))

    ctx.inject([key, "tools"], with_service)
