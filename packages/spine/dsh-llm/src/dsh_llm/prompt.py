"""Where the prompt of a request goes; adapters ask here."""

from collections.abc import Sequence

from dsh_llm.messages import RequestMessage, message_text


def effective_prompt(messages: Sequence[RequestMessage], system: str | None = None) -> str:
    """The prompt in force: the last non-empty system message, the `system` option before it."""
    texts = (message_text(m) for m in reversed(messages) if m.role == "system")
    return _joined(system, next(filter(None, texts), ""))


def leading_prompt(
    messages: Sequence[RequestMessage], system: str | None = None, *, in_history: bool = False
) -> tuple[str, list[RequestMessage]]:
    """Split a request into its leading prompt and the messages of its history.

    Args:
        messages: The messages of the request, oldest first.
        system: The `system` option of the request.
        in_history: The route lets later prompts stand in history (`system_prompt_update`).

    Returns:
        The text of the leading prompt, empty if there is none, and the messages to send. Without
        `in_history` they hold no system message; with it, each later non-empty prompt at its place.
    """
    if not in_history:
        rest = [message for message in messages if message.role != "system"]
        return effective_prompt(messages, system), rest
    start = next((i for i, m in enumerate(messages) if m.role != "system"), len(messages))
    history = [m for m in messages[start:] if m.role != "system" or message_text(m)]
    return effective_prompt(messages[:start], system), history


def _joined(system: str | None, text: str) -> str:
    return f"{system}\n\n{text}" if system and text else system or text
