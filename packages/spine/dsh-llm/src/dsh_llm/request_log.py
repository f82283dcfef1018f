"""The requests of one conversation: each is derived from what is new since the last one."""

from collections.abc import Iterable, Sequence
from typing import Final

from dsh_llm.derivation import Derivation, RepairKind, RequestRepair, sound_calls
from dsh_llm.growing import MessageLog
from dsh_llm.messages import RequestMessage

_LOCAL: Final[frozenset[RepairKind]] = frozenset(
    {"text-replaced", "content-filled", "message-dropped", "arguments-replaced"}
)


class RequestLog:
    """A history that grows, and `request_messages` of it at the cost of what is new.

    Messages that stand alone - their calls have their answers, and no id was used before - change
    nothing in the request that stood before them. After any others the whole history is derived
    anew, once. Who rewrites the history begins another log.
    """

    __slots__ = ("_derived", "_ids", "_messages", "_repairs", "_sent")

    def __init__(self, messages: Iterable[RequestMessage] = ()) -> None:
        self._messages = list(messages)
        self._derived = 0
        self._sent = MessageLog()
        self._ids: set[str] = set()
        self._repairs: list[RequestRepair] = []

    def __len__(self) -> int:
        """How many messages the history has."""
        return len(self._messages)

    def extend(self, messages: Iterable[RequestMessage]) -> None:
        """Add what happened."""
        self._messages.extend(messages)

    def messages(self) -> Sequence[RequestMessage]:
        """The messages of a request: a view that later messages do not change."""
        if self._derived < len(self._messages):
            self._take(self._messages[self._derived :])
            self._derived = len(self._messages)
        return self._sent.view()

    def _take(self, news: Sequence[RequestMessage]) -> None:
        ids = sound_calls(news)
        if ids is not None and self._ids.isdisjoint(ids):
            self._ids |= ids
            self._sent.extend(news)
            return
        derived = Derivation(news)
        repairs = tuple(derived.repairs())
        if any(repair.kind not in _LOCAL for repair in repairs) or not self._ids.isdisjoint(
            derived.call_ids
        ):
            self._sent, self._ids, self._repairs = MessageLog(), set(), []
            derived = Derivation(self._messages)
            repairs = tuple(derived.repairs())
        self._ids |= derived.call_ids
        self._sent.extend(derived.messages)
        self._repairs += repairs

    def repairs(self) -> tuple[RequestRepair, ...]:
        """What `request_repairs` tells of the history that the last request was made of."""
        return tuple(self._repairs)
