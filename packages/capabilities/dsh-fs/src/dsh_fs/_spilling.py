"""Saves what a search found beyond what a model is shown."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from dsh_brand import HarnessError
from dsh_cordis import Context, Next
from dsh_llm import TextBlock
from dsh_tools import (
    Accept,
    PostToolDecision,
    ToolDefinition,
    ToolExecutionResult,
    ToolRegistry,
    ToolsPostExecute,
    ToolSuccess,
)

from . import texts
from ._search_values import is_over_cap, render_whole


class Saved(Protocol):
    """A text that was saved."""

    @property
    def locator(self) -> str:
        """Where it is."""
        ...

    @property
    def retrieval_hint(self) -> str:
        """Tells a model how to get at it."""
        ...


class SavesText(Protocol):
    """The spill store, as far as it is used here."""

    async def save_text(self, owner: str, source: str, suggested_name: str, content: str) -> Saved:
        """Save a text."""
        ...


def spill_over_cap(
    ctx: Context,
    tools: ToolRegistry,
    definitions: Sequence[ToolDefinition],
    store: Callable[[], SavesText | None],
) -> None:
    """Save the whole result of these tools where it was capped, and tell the model where it is."""

    async def spill(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
        decision = await next_()
        run, target = event.exec, store()
        value = _capped_value(event.result)
        if target is None or value is None or run.parent is not None:
            return decision
        ours = any(tools.get(run.name, run.agent) is each for each in definitions)
        if not ours or not isinstance(decision, Accept) or _replaces(decision):
            return decision
        owner = "nobody" if run.agent is None else run.agent.id
        try:
            saved = await target.save_text(owner, run.name, str(run.call_id), render_whole(value))
            note = texts.SAVED.format(place=saved.locator, hint=saved.retrieval_hint)
        except HarnessError as error:
            ctx.log.warning("fs.spill_failed", tool=run.name, code=error.code)
            note = texts.NOT_SAVED
        content = (*event.result.content, TextBlock(note))
        changed: Accept = msgspec.structs.replace(decision, content=content)
        return changed

    ctx.on(ToolsPostExecute, spill, prepend=True)


def _replaces(decision: Accept) -> bool:
    return decision.content is not msgspec.UNSET or decision.value is not msgspec.UNSET


def _capped_value(result: ToolExecutionResult) -> dict[str, Any] | None:
    value = result.value if isinstance(result, ToolSuccess) else None
    if not isinstance(value, dict) or not ("paths" in value or "matches" in value):
        return None
    known: dict[str, Any] = value
    return known if is_over_cap(known) else None
