"""Keeps large tool results out of the history: the model gets both ends and a file.

Upstream: packages/shell/spill-policy/src/index.ts.
"""

from typing import Final

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger

from dsh_brand import utf16_len
from dsh_cordis import Context, Next
from dsh_llm import TextBlock, estimate_block
from dsh_tools import (
    Accept,
    Content,
    PostToolDecision,
    ToolExecutionResult,
    ToolRunContext,
    ToolsPostExecute,
)

from . import texts
from .errors import SpillError
from .spill import SpillStore

log: FilteringBoundLogger = structlog.get_logger(__name__)

_UNITS_PER_TOKEN: Final = 4
_NEVER: Final = frozenset({"read"})
"""Tools that bound themselves and are how a saved result is read."""


class Needs(Context):
    """What the policy works with."""

    spill_store: SpillStore


def spill_policy(ctx: Needs, max_inline_tokens: int) -> None:
    """Bound the results of direct calls to a number of estimated tokens each."""

    async def bound(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
        decision = await next_()
        text = _accepted_text(event.exec, event.result, decision)
        if text is None or estimate_block(TextBlock(text)) <= max_inline_tokens:
            return decision
        short = await _shortened(ctx.spill_store, event.exec, text, max_inline_tokens)
        if short is None or not isinstance(decision, Accept):
            return decision
        changed: Accept = msgspec.structs.replace(decision, content=short)
        return changed

    ctx.on(ToolsPostExecute, bound, prepend=True)


apply = spill_policy


def _accepted_text(
    run: ToolRunContext, result: ToolExecutionResult, decision: PostToolDecision
) -> str | None:
    """The text that the model is about to get; `None` where the policy keeps out."""
    if run.parent is not None or run.name in _NEVER or not isinstance(decision, Accept):
        return None
    if decision.value is not msgspec.UNSET:
        return None
    content: Content = result.content if decision.content is msgspec.UNSET else decision.content
    if isinstance(content, str):
        return content
    blocks = [block.text for block in content if isinstance(block, TextBlock)]
    return "\n".join(blocks) if len(blocks) == len(content) else None


async def _shortened(
    store: SpillStore, run: ToolRunContext, text: str, max_tokens: int
) -> str | None:
    owner = "nobody" if run.agent is None else run.agent.id
    try:
        saved = await store.save_text(owner, run.name, str(run.call_id), text)
    except SpillError as error:
        log.warning("spill.policy_failed", tool=run.name, error=error.message)
        return None
    widest = texts.LEFT_OUT.format(
        count=saved.bytes, place=saved.locator, hint=saved.retrieval_hint
    )
    room = (max_tokens - estimate_block(TextBlock(""))) * _UNITS_PER_TOKEN - utf16_len(widest) - 2
    if room < 0:
        return None
    head, tail = ends_of(text, room // 2)
    left_out = (
        saved.bytes - len(head.encode("utf-8", "replace")) - len(tail.encode("utf-8", "replace"))
    )
    notice = texts.LEFT_OUT.format(count=left_out, place=saved.locator, hint=saved.retrieval_hint)
    return f"{head}\n{notice}\n{tail}"


def ends_of(text: str, units: int) -> tuple[str, str]:
    """Both ends of a text, at most so many UTF-16 units each, no character cut."""
    if not units:
        return "", ""
    data = text.encode("utf-16-le", "surrogatepass")
    head, tail = data[: 2 * units], data[-2 * units :]
    return head.decode("utf-16-le", "ignore"), tail.decode("utf-16-le", "ignore")
