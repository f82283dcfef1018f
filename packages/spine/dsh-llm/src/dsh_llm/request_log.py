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
        self._ids: set[str] | None = None  # of calls: a set is half of what an idle log weighs
        self._repairs: tuple[RequestRepair, ...] = ()

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
        if ids is not None and self._are_new(ids):
            self._sent.extend(news)
            self._note(ids)
            return
        derived = Derivation(news)
        repairs = tuple(derived.repairs())
        if not (
            self._are_new(derived.call_ids) and all(repair.kind in _LOCAL for repair in repairs)
        ):
            self._sent, self._ids, self._repairs = MessageLog(), None, ()
            derived = Derivation(self._messages)
            repairs = tuple(derived.repairs())
        self._sent.extend(derived.messages)
        self._note(derived.call_ids)
        self._repairs += repairs

    def _are_new(self, ids: set[str]) -> bool:
        return self._ids is None or self._ids.isdisjoint(ids)

    def _note(self, ids: set[str]) -> None:
        if self._ids is not None:
            self._ids |= ids
        elif ids:
            self._ids = ids

    def repairs(self) -> tuple[RequestRepair, ...]:
        """What `request_repairs` tells of the history that the last request was made of."""
        return self._repairs
