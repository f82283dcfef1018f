"""Tool calls of an answer: ids of their own, and what their arguments say."""

import uuid
from collections.abc import Callable, Sequence

import msgspec

from dsh_brand import JsonValue, decode_json
from dsh_llm import Block, CallId, ToolCallBlock


def make_calls_distinct(
    blocks: Sequence[Block],
    used: set[str],
    fresh: Callable[[], str] = lambda: f"call_{uuid.uuid4()}",
) -> list[Block]:
    """Give each call an id of its own: the first use of an id keeps it.

    Args:
        blocks: Of one answer.
        used: Ids that the session has; those of the answer are added.
        fresh: Makes ids.
    """
    result: list[Block] = []
    for block in blocks:
        if not isinstance(block, ToolCallBlock):
            result.append(block)
            continue
        call_id = block.id
        while not call_id or call_id in used:
            call_id = CallId(fresh())
        used.add(call_id)
        result.append(block if call_id == block.id else msgspec.structs.replace(block, id=call_id))
    return result


def parse_arguments(text: str) -> JsonValue:
    """The arguments as a value: nothing is an empty object, text that is no JSON stays text."""
    if not text:
        return {}
    try:
        return decode_json(text)
    except ValueError:
        return text
