"""The messages of a request: derived from the log, and judged no more often than needed."""

from collections.abc import Callable, Sequence

from dsh_llm import RequestLog, RequestMessage, RequestRepair
from dsh_session import Session


class RequestHistory:
    """`request_messages` over one session's history, at the cost of what is new."""

    __slots__ = (
        "_generation",
        "_log",
        "_repaired",
        "_session",
    )

    def __init__(
        self, session: Session, repaired: Callable[[Sequence[RequestRepair]], None]
    ) -> None:
        self._session = session
        self._repaired = repaired
        self._generation = session.surface.content_generation
        self._log = RequestLog()

    def messages(self) -> Sequence[RequestMessage]:
        """The history as a provider can be sent it."""
        generation = self._session.surface.content_generation
        if generation != self._generation:
            self._generation, self._log = generation, RequestLog()
        log = self._log
        log.extend(self._session.derive_messages(len(log)))
        messages = log.messages()
        repairs = log.repairs()
        if repairs:
            self._repaired(repairs)
        return messages
