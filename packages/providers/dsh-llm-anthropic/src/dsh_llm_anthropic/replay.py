"""What a response must get back in later requests: signatures of its thinking (L43, L149).

Upstream: packages/llm/llm-anthropic/src/replay.ts.
"""

from collections.abc import Mapping, Sequence

import structlog
from structlog.typing import FilteringBoundLogger

from dsh_brand import JsonObject, freeze_object
from dsh_llm import (
    ContentBlock,
    Message,
    ModelSource,
    ReasoningBlock,
    ReplayEnvelope,
    RequestMessage,
)

log: FilteringBoundLogger = structlog.get_logger(__name__)

KIND = "anthropic"
VERSION = 1

Entry = Mapping[str, object]


def text_entry() -> JsonObject:
    """The entry of a text block."""
    return freeze_object({"type": "text"})


def call_entry() -> JsonObject:
    """The entry of a tool call."""
    return freeze_object({"type": "tool-call"})


def reasoning_entry(signature: str, redacted: str | None) -> JsonObject:
    """The entry of a thinking block, or of one whose text the provider hides."""
    if redacted is not None:
        return freeze_object({"type": "reasoning", "redactedData": redacted})
    signed = {"signature": signature} if signature else {}
    return freeze_object({"type": "reasoning", **signed})


def envelope(
    response_id: str, model: str, stop_reason: str | None, blocks: Sequence[JsonObject]
) -> ReplayEnvelope:
    """The replay state of a successful response."""
    response = {
        "kind": KIND,
        "version": VERSION,
        "id": response_id,
        "model": model,
        "stopReason": stop_reason,
    }
    return ReplayEnvelope(freeze_object(response), tuple(blocks))


def usable_entries(message: RequestMessage, model: str) -> Sequence[Entry] | None:
    """One entry per block, if the message's replay state can be used for this model.

    An unusable state is reported once here; the message then goes out without it.
    """
    source = message.source if isinstance(message, Message) else None
    if not isinstance(source, ModelSource) or source.replay_state is None:
        return None
    entries, problem = _entries(message.content, source, source.replay_state, model)
    if problem:
        log.warning(
            "llm_anthropic.replay_state_unusable",
            message=getattr(message, "id", None),
            problem=problem,
        )
        return None
    return entries


def _entries(
    content: Sequence[ContentBlock], source: ModelSource, state: ReplayEnvelope, model: str
) -> tuple[Sequence[Entry], str]:
    response = state.response
    if not isinstance(response, Mapping) or response.get("kind") != KIND:
        return (), "another kind"
    if response.get("version") != VERSION:
        return (), "another version"
    if source.model != model:
        return (), "another model"
    entries = [entry for entry in state.blocks or () if isinstance(entry, Mapping)]
    if len(entries) != len(content) or len(entries) != len(state.blocks or ()):
        return (), "another number of blocks"
    for entry, block in zip(entries, content, strict=True):
        if entry.get("type") != block.type or not _fits(entry, block):
            return (), "other blocks"
    return entries, ""


def _fits(entry: Entry, block: ContentBlock) -> bool:
    if not isinstance(block, ReasoningBlock):
        return True
    parts = [entry.get(name) for name in ("signature", "redactedData")]
    return all(part is None or (isinstance(part, str) and part) for part in parts)
