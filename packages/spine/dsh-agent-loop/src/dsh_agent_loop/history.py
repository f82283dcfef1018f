"""The messages of a request: derived from the log, and judged no more often than needed."""

from collections.abc import Callable, Sequence

from dsh_llm import (
    Message,
    RequestMessage,
    RequestRepair,
    ToolCallBlock,
    request_messages,
    request_repairs,
)
from dsh_session import Session


class RequestHistory:
    """`request_messages` over one session's history, at the cost of what is new.

    What was judged and found sound stays so: a later message changes it only by using one of its
    call ids again. Only then, and when the history was rewritten, all of it is judged anew.
    """

    def __init__(
        self, session: Session, repaired: Callable[[Sequence[RequestRepair]], None]
    ) -> None:
        self._session = session
        self._repaired = repaired
        self._start_over()

    def _start_over(self) -> None:
        self._generation = self._session.surface.content_generation
        self._sound = 0
        self._calls: set[str] = set()

    def messages(self) -> Sequence[RequestMessage]:
        """The history as a provider can be sent it."""
        derived = self._session.derive_messages()
        if self._generation != self._session.surface.content_generation:
            self._start_over()
        news = derived[self._sound :]
        if self._is_sound(news):
            self._sound = len(derived)
            return derived
        messages = request_messages(derived)
        if messages is not derived:
            self._repaired(request_repairs(derived))
        return messages

    def _is_sound(self, news: Sequence[Message]) -> bool:
        calls = [
            block.id
            for message in news
            if message.role == "assistant"
            for block in message.content
            if isinstance(block, ToolCallBlock)
        ]
        if not self._calls.isdisjoint(calls) or request_messages(news) is not news:
            return False
        self._calls.update(calls)
        return True
