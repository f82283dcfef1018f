"""What a strict provider refuses in a chat-completions request (L211)."""

from collections.abc import Mapping, Sequence


def broken_rule(body: Mapping[str, object]) -> str | None:
    """What is wrong with the messages, or `None`."""
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
