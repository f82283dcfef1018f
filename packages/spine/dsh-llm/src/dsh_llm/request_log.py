"""The requests of one conversation: each is derived from what is new since the last one."""

from collections.abc import Iterable, Sequence
from typing import Final

from dsh_llm._local_repairs import examine
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

    __slots__ = ("_history", "_ids", "_news", "_repairs", "_sent")

    def __init__(self, messages: Iterable[RequestMessage] = ()) -> None:
        self._news = list(messages)
        """What no request was made of yet."""
        self._sent = MessageLog()
        self._history: list[RequestMessage] | None = None
        """All before the news, where it differs from what is sent."""
        self._ids: set[str] | None = None  # of calls: a set is half of what an idle log weighs
        self._repairs: tuple[RequestRepair, ...] = ()

    def __len__(self) -> int:
        """How many messages the history has."""
        before = self._sent if self._history is None else self._history
        return len(before) + len(self._news)

    def extend(self, messages: Iterable[RequestMessage]) -> None:
        """Add what happened."""
        self._news.extend(messages)

    def messages(self) -> Sequence[RequestMessage]:
        """The messages of a request: a view that later messages do not change."""
        if self._news:
            self._take(self._news)
            self._news.clear()
        return self._sent.view()

    def _take(self, news: Sequence[RequestMessage]) -> None:
        ids = sound_calls(news, examine)
        if ids is not None and self._are_new(ids):
            self._sent.extend(news)
            if self._history is not None:
                self._history += news
            self._note(ids)
            return
        if self._history is None:
            self._history = list(self._sent.view())
        derived = Derivation(news)
        repairs = tuple(derived.repairs())
        if not (
            self._are_new(derived.call_ids) and all(repair.kind in _LOCAL for repair in repairs)
        ):
            self._sent, self._ids, self._repairs = MessageLog(), None, ()
            derived = Derivation([*self._history, *news])
            repairs = tuple(derived.repairs())
        self._sent.extend(derived.messages)
        self._history += news
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
