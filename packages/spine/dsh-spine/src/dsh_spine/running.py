"""Ask once and get the answer: for scripts, notebooks and tests."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import anyio
import msgspec

from dsh_agent import Agent
from dsh_brand import HarnessError
from dsh_cordis import Context, Fiber, FiberState, Plugin
from dsh_llm import TokenUsage, message_text
from dsh_session import (
    AssistantMessageEvent,
    ErrorEnd,
    SessionEvent,
    SessionId,
    TurnEnd,
    TurnEndReason,
)

from ._spine import SpineContext, spine

Mounted: TypeAlias = Plugin | tuple[Plugin, object]
"""A plugin, or a plugin with its configuration."""


class RunResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run came to."""

    text: str
    """The last answer; empty if there was none."""
    usage: TokenUsage
    """Of all answers of the run."""
    session_id: SessionId
    """To resume it, where a store was mounted."""
    ending: TurnEndReason
    """How the turn ended: completed, cut by the output limit, blocked, aborted."""


class RunError(HarnessError):
    """A run had no result; `session_id` names what was logged, if anything was.

    ├── code RUNNING_LOOP    `run()` was called where an event loop runs: await `run_async()`
    ├── code NO_SESSION      `resume=True` without the session to resume
    ├── code PLUGIN_WAITING  a plugin needs a service that nothing here provides
    └── otherwise            the code of the failure that ended the turn
    """

    def __init__(self, message: str, code: str, session_id: SessionId | None = None) -> None:
        super().__init__(message, code)
        self.session_id = session_id


def run(
    prompt: str,
    *,
    provider: str,
    model: str,
    plugins: Sequence[Mounted] = (),
    config: Mapping[str, object] | None = None,
    session_id: str | None = None,
    resume: bool = False,
    backend: str = "asyncio",
) -> RunResult:
    """Run one turn and return its answer; the blocking form of `run_async`.

    Args:
        prompt: What to ask.
        provider: Route of the model, such as `deepseek`.
        model: Its name on that route.
        plugins: What to mount beside the spine: the provider, tools, a store.
        config: Configuration of the spine's parts.
        session_id: Id of the session; minted when absent.
        resume: Go on with that session, which a mounted store holds.
        backend: `asyncio` or `trio`.

    Raises:
        RunError: The turn failed, a plugin cannot start, or an event loop runs here already.
    """
    _refuse_running_loop()

    async def main() -> RunResult:
        return await run_async(
            prompt,
            provider=provider,
            model=model,
            plugins=plugins,
            config=config,
            session_id=session_id,
            resume=resume,
        )

    return anyio.run(main, backend=backend)


async def run_async(
    prompt: str,
    *,
    provider: str,
    model: str,
    plugins: Sequence[Mounted] = (),
    config: Mapping[str, object] | None = None,
    session_id: str | None = None,
    resume: bool = False,
) -> RunResult:
    """Run one turn in a stack of its own; everything is gone when this returns.

    Args:
        prompt: What to ask.
        provider: Route of the model, such as `deepseek`.
        model: Its name on that route.
        plugins: What to mount beside the spine: the provider, tools, a store.
        config: Configuration of the spine's parts.
        session_id: Id of the session; minted when absent.
        resume: Go on with that session, which a mounted store holds.

    Raises:
        RunError: The turn failed, or a plugin cannot start.
    """
    named = None if session_id is None else SessionId(session_id)
    if resume and named is None:
        raise RunError("resume=True needs the session to go on with: give session_id", "NO_SESSION")
    if not isinstance(plugins, Sequence):
        raise TypeError(f"plugins is a list of plugins, not {plugins!r}; write plugins=[...]")
    async with SpineContext() as ctx:
        _ = ctx.plugin(spine, config)
        fibers = [_mount(ctx, mounted) for mounted in plugins]
        await ctx.settled()
        _refuse_waiting(fibers)
        if resume and named is not None:
            handle = await ctx.agents.resume(named, provider=provider, model=model)
        else:
            handle = await ctx.agents.create(session_id=named, provider=provider, model=model)
        return await ask(handle.agent, prompt)


async def ask(agent: Agent, prompt: str) -> RunResult:
    """Send a follow-up to an agent, wait until it is idle, and return what came of it.

    Cancelling the wait leaves the turn alone; `agent.cancel()` stops it.

    Args:
        agent: An agent at rest.
        prompt: What to ask.

    Raises:
        RunError: The turn failed.
    """
    before = agent.session.seq
    agent.followup(prompt)
    await agent.when_idle()
    return _result(agent.id, agent.session.events[before:])


def _mount(ctx: Context, mounted: Mounted) -> Fiber:
    plugin, config = mounted if isinstance(mounted, tuple) else (mounted, None)
    return ctx.plugin(plugin, config)


def _refuse_waiting(fibers: Sequence[Fiber]) -> None:
    """Nothing is mounted later here, so who waits for a service would wait for ever."""
    for fiber in fibers:
        missing = fiber.missing()
        if fiber.state is FiberState.PENDING and missing:
            needed = ", ".join(f"'{key}'" for key in missing)
            raise RunError(
                f"plugin {fiber.name!r} waits for {needed}, which nothing here provides; add a "
                "plugin that does to `plugins`",
                "PLUGIN_WAITING",
            )


def _result(session_id: SessionId, events: Sequence[SessionEvent]) -> RunResult:
    text, ending = "", None
    usages: list[TokenUsage] = []
    for event in events:
        match event.data:
            case AssistantMessageEvent(message=message, usage=usage):
                text = message_text(message) or text
                usages += [] if usage is None else [usage]
            case TurnEnd(reason=reason):
                ending = reason
            case _:
                pass
    if isinstance(ending, ErrorEnd):
        raise RunError(ending.error.message, ending.error.code, session_id)
    if ending is None:
        raise RunError(
            f"session {session_id!r} logged no end of a turn; look at its events", "NO_TURN"
        )
    return RunResult(text=text, usage=_sum(usages), session_id=session_id, ending=ending)


def _sum(usages: Sequence[TokenUsage]) -> TokenUsage:
    return TokenUsage(
        input_tokens=sum(usage.input_tokens for usage in usages),
        output_tokens=sum(usage.output_tokens for usage in usages),
        cache_read_tokens=sum(usage.cache_read_tokens or 0 for usage in usages) or None,
        cache_write_tokens=sum(usage.cache_write_tokens or 0 for usage in usages) or None,
        reasoning_tokens=sum(usage.reasoning_tokens or 0 for usage in usages) or None,
    )


def _refuse_running_loop() -> None:
    try:
        anyio.get_current_task()
    except anyio.NoEventLoopError:
        return
    raise RunError(
        "run() blocks, and an event loop runs here already (a notebook has one); "
        "write `await run_async(...)` instead",
        "RUNNING_LOOP",
    )
