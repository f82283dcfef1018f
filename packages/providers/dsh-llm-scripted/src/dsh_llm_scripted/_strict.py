"""What a strict provider refuses in a request (L211)."""

from collections.abc import Mapping, Sequence
from typing import TypeGuard


def broken_rule(body: Mapping[str, object]) -> str | None:
    """What is wrong with the messages of a chat-completions request, or `None`."""
    messages = body.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        return "messages must be a non-empty list"
    owed: list[str] = []
    seen: set[str] = set()
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping):
            return f"messages[{position}] is not an object"
        problem = _message_problem(message, owed, seen)
        if problem is not None:
            return f"messages[{position}] {problem}"
    return f"the tool calls {owed} have no answer" if owed else None


def _message_problem(message: Mapping[str, object], owed: list[str], seen: set[str]) -> str | None:
    role = message.get("role")
    if role == "tool":
        return _answer_problem(message, owed)
    if owed:
        return f"stands before the answers to the tool calls {owed}"
    calls = message.get("tool_calls") if role == "assistant" else None
    if isinstance(calls, Sequence) and calls:
        return _calls_problem(calls, owed, seen)
    thought = message.get("reasoning_content") or message.get("reasoning")
    return None if message.get("content") or thought else f"of role {role!r} is empty"


def _answer_problem(message: Mapping[str, object], owed: list[str]) -> str | None:
    call_id = message.get("tool_call_id")
    if not isinstance(call_id, str) or call_id not in owed:
        return f"answers {call_id!r}, which the message before it does not call"
    owed.remove(call_id)
    return None if message.get("content") else "of role 'tool' is empty"


def _calls_problem(calls: Sequence[object], owed: list[str], seen: set[str]) -> str | None:
    for call in calls:
        call_id = call.get("id") if isinstance(call, Mapping) else None
        if not isinstance(call_id, str) or not call_id:
            return "holds a tool call without an id"
        if call_id in seen:
            return f"repeats the tool call id {call_id!r}"
        seen.add(call_id)
        owed.append(call_id)
    return None


def broken_messages_rule(body: Mapping[str, object]) -> str | None:
    """What is wrong with the messages of a Messages request, or `None`."""
    messages = body.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        return "messages must be a non-empty list"
    if not isinstance(body.get("max_tokens"), int):
        return "max_tokens is missing"
    owed: list[str] = []
    seen: set[str] = set()
    before = ""
    for position, message in enumerate(messages):
        blocks = message.get("content") if isinstance(message, Mapping) else None
        if not isinstance(message, Mapping) or not _is_block_list(blocks):
            return f"messages[{position}] has no list of blocks"
        role = str(message.get("role"))
        problem = _order_problem(role, before) or _blocks_problem(role, blocks, owed, seen)
        if problem is not None:
            return f"messages[{position}] {problem}"
        before = role if role != "system" else before
    return f"the tool calls {owed} have no answer" if owed else None


def _is_block_list(blocks: object) -> TypeGuard[Sequence[Mapping[str, object]]]:
    return (
        isinstance(blocks, Sequence)
        and not isinstance(blocks, str)
        and bool(blocks)
        and all(isinstance(block, Mapping) for block in blocks)
    )


def _order_problem(role: str, before: str) -> str | None:
    if role == "system":
        return None if before == "user" else "is a prompt without a user turn before it"
    if not before and role != "user":
        return "comes first and is not the user's"
    return f"repeats the role {role!r}" if role == before else None


def _blocks_problem(
    role: str, blocks: Sequence[Mapping[str, object]], owed: list[str], seen: set[str]
) -> str | None:
    for block in blocks:
        kind = block.get("type")
        if owed and kind != "tool_result":
            return f"stands before the answers to the tool calls {owed}"
        if kind == "text" and not str(block.get("text", "")).strip():
            return f"of role {role!r} is empty"
        if kind == "tool_result":
            problem = _result_problem(block, owed)
            if problem is not None:
                return problem
    calls = [block for block in blocks if block.get("type") == "tool_use"]
    return _calls_problem(calls, owed, seen)


def _result_problem(block: Mapping[str, object], owed: list[str]) -> str | None:
    call_id = block.get("tool_use_id")
    if not isinstance(call_id, str) or call_id not in owed:
        return f"answers {call_id!r}, which the message before it does not call"
    owed.remove(call_id)
    return None if block.get("content") else "holds an empty tool result"
