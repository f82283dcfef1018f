"""Call ids that the wire can carry, distinct within one request (L171)."""

from collections.abc import Iterator, Sequence

from dsh_llm import RequestMessage, ToolCallBlock

from .fragments import NAMES


class CallIds:
    """Replaces ids that do not fit the alphabet, the same way in a call and its answer.

    Args:
        messages: All messages of the request: no substitute equals an id that one of them has.
    """

    def __init__(self, messages: Sequence[RequestMessage]) -> None:
        ids = list(dict.fromkeys(_ids(messages)))
        self._sent = {each: each for each in ids if NAMES.fits(each)}
        taken = set(self._sent)
        for each in ids:
            if each not in self._sent:
                self._sent[each] = substitute = _free(each, taken)
                taken.add(substitute)

    def sent(self, call_id: str) -> str:
        """The id as it goes over the wire."""
        return self._sent.get(call_id, call_id)


def _ids(messages: Sequence[RequestMessage]) -> Iterator[str]:
    for message in messages:
        if message.role == "assistant":
            for block in message.content:
                if isinstance(block, ToolCallBlock):
                    yield block.id
        elif message.role == "tool":
            yield getattr(message, "tool_call_id", None) or ""


def _free(call_id: str, taken: set[str]) -> str:
    wanted = NAMES.sendable(call_id)
    number = 1
    found = wanted
    while found in taken:
        number += 1
        end = f"_{number}"
        found = wanted[: NAMES.limit - len(end)] + end
    return found
