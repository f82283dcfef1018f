"""Pure decisions of the commit section: prompt nodes, header, request context, runtime context."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from dsh_llm import Message, TextBlock, message_text
from dsh_session import RequestContext, RequestHeader, header_equals

HeaderReason = Literal["initial", "resume", "change", "series"]


class SystemNode(msgspec.Struct, frozen=True):
    """A `system/message` on the surface."""

    seq: int
    text: str | None
    """Empty for an empty node; `None` when it is not one text block, and so differs from any."""


class AppendPrompt(msgspec.Struct, frozen=True):
    """Log the prompt as a further system message."""

    text: str


class ReplacePrompt(msgspec.Struct, frozen=True):
    """Log a system message in the place of one node."""

    seq: int
    text: str


class FallbackPrompt(msgspec.Struct, frozen=True):
    """Put the prompt in front of the batch as a user message; no system message may be written."""

    text: str


PromptChange = AppendPrompt | ReplacePrompt | FallbackPrompt


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    """What prompt admission looks at."""

    empty: bool
    head_is_system: bool
    system_nodes: Sequence[SystemNode]
    fallback_text: str | None = None
    """Text of the last prompt that went in as a user message and is still there."""


def node_text(message: Message) -> str | None:
    """The text of a system node as admission compares it."""
    match message.content:
        case ():
            return ""
        case (TextBlock(text=text),):
            return text
        case _:
            return None


def admit_prompt(rendered: str, surface: Surface, *, consolidate: bool) -> list[PromptChange]:
    """Reconcile the rendered prompt with the surface.

    Args:
        rendered: The whole prompt of this step.
        surface: The system nodes as they stand.
        consolidate: Bring everything back into the first node: the route reads only a leading
            prompt, a new series begins, or the tools changed.
    """
    if surface.empty:
        return [AppendPrompt(rendered)]
    if not surface.head_is_system:
        return _fall_back(rendered, surface)
    nodes = surface.system_nodes
    if consolidate or not rendered:
        return _consolidate(rendered, nodes)
    effective = next((node for node in reversed(nodes) if node.text != ""), nodes[0])
    return [] if effective.text == rendered else [AppendPrompt(rendered)]


def _fall_back(rendered: str, surface: Surface) -> list[PromptChange]:
    known = surface.fallback_text
    if rendered == known or (not rendered and known is None):
        return []
    return [FallbackPrompt(rendered)]


def _consolidate(rendered: str, nodes: Sequence[SystemNode]) -> list[PromptChange]:
    if len(nodes) == 1 and nodes[0].text == rendered:
        return []
    head, *later = nodes
    emptied = [node for node in later if node.text != ""]
    if not rendered:
        # The history never shows two prompts at once, so the latest one goes first.
        emptied.reverse()
    changes: list[PromptChange] = [ReplacePrompt(node.seq, "") for node in emptied]
    if head.text != rendered:
        changes.append(ReplacePrompt(head.seq, rendered))
    return changes


class HeaderDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A header to log, and why."""

    reason: HeaderReason
    starts_series: bool


def admit_header(
    header: RequestHeader, previous: RequestHeader | None, *, first: bool, series: bool
) -> HeaderDecision | None:
    """Decide whether the header of a request is logged.

    Args:
        header: Of the request to be made.
        previous: The last one of the log.
        first: This is the first request of the running instance.
        series: A new message series begins with this request.
    """
    if previous is None:
        return HeaderDecision(reason="initial", starts_series=series)
    if first:
        return HeaderDecision(reason="resume", starts_series=series)
    if not header_equals(header, previous):
        return HeaderDecision(reason="change", starts_series=series)
    return HeaderDecision(reason="series", starts_series=False) if series else None


def context_changed(current: RequestContext, previous: RequestContext | None) -> bool:
    """Whether the facts about the route differ from the last record."""
    return previous is None or _facts(current) != _facts(previous)


def _facts(context: RequestContext) -> tuple[str, str, int | None, str | None]:
    return (
        context.provider,
        context.model,
        context.context_window,
        context.system_prompt_update,
    )


def admit_runtime_context(
    offered: Message | None, cleared: Message, last: Message | None
) -> Message | None:
    """The runtime context to add to a batch, if any.

    Args:
        offered: The current snapshot; `None` when there is no context.
        cleared: Says that earlier snapshots no longer apply.
        last: The snapshot that the model still sees.
    """
    if offered is None:
        if last is None or message_text(last) == message_text(cleared):
            return None
        return cleared
    if last is not None and message_text(last) == message_text(offered):
        return None
    return offered
