"""Where the prompt of a request goes; adapters ask here."""

from collections.abc import Sequence

from dsh_llm.growing import MessageLog, folded
from dsh_llm.messages import RequestMessage, message_text


def effective_prompt(messages: Sequence[RequestMessage], system: str | None = None) -> str:
    """The prompt in force: the last non-empty system message, the `system` option before it."""
    texts = (message_text(m) for m in reversed(messages) if m.role == "system")
    return _joined(system, next(filter(None, texts), ""))


def leading_prompt(
    messages: Sequence[RequestMessage], system: str | None = None, *, in_history: bool = False
) -> tuple[str, Sequence[RequestMessage]]:
    """Split a request into its leading prompt and the messages of its history.

    Args:
        messages: The messages of the request, oldest first.
        system: The `system` option of the request.
        in_history: The route lets later prompts stand in history (`system_prompt_update`).

    Returns:
        The text of the leading prompt, empty if there is none, and the messages to send. Without
        `in_history` they hold no system message; with it, each later non-empty prompt at its place.
    """
    split = folded(messages, (_Split, in_history), lambda: _Split(in_history))
    return _joined(system, split.prompt), split.rest.view()


class _Split:
    """The prompt in force, and what is sent besides it."""

    __slots__ = ("_in_history", "prompt", "rest")

    def __init__(self, in_history: bool) -> None:
        self._in_history = in_history
        self.prompt = ""
        self.rest = MessageLog()

    def extend(self, messages: Sequence[RequestMessage]) -> None:
        rest: list[RequestMessage] = []
        for message in messages:
            if message.role != "system":
                rest.append(message)
            elif text := message_text(message):
                if self._in_history and (rest or len(self.rest)):
                    rest.append(message)
                else:
                    self.prompt = text
        self.rest.extend(rest)


def _joined(system: str | None, text: str) -> str:
    return f"{system}\n\n{text}" if system and text else system or text
