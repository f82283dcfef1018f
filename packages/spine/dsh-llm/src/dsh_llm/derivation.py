"""Derives the messages of a request from history: whatever is in the log, the request is valid.

This is the one place that repairs history. It is pure: the same messages give the same request,
nothing stored is changed, and a second derivation changes nothing.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import is_
from typing import Final, Literal, NamedTuple, TypeAlias

from dsh_brand import replace
from dsh_llm._local_repairs import LocalRepair, LocalVerdict, local_verdict
from dsh_llm.blocks import ContentBlock, TextBlock, ToolCallBlock
from dsh_llm.ids import CallId, MessageId
from dsh_llm.messages import Message, RequestMessage
from dsh_llm.sources import ToolSource

MISSING_RESULT_TEXT: Final = (
    "The outcome of this tool call is not recorded: it may have run in full, in part or not at "
    "all. Repeat it only if it reads or if repeating does no harm; otherwise check first, or ask."
)

RepairKind: TypeAlias = Literal[
    "text-replaced",
    "content-filled",
    "message-dropped",
    "answer-moved",
    "answer-dropped",
    "answer-filled",
    "call-renamed",
    "arguments-replaced",
]


class RequestRepair(NamedTuple):
    """One change that the derivation makes.

    Attributes:
        kind: What is changed.
        message_id: The message of the log that it concerns; `None` for a `RequestUserInput`. For
            `answer-filled` the assistant message that holds the call.
        call_id: The call, as the log names it, where there is one.
    """

    kind: RepairKind
    message_id: MessageId | None
    call_id: CallId | None = None


def request_messages(messages: Sequence[RequestMessage]) -> Sequence[RequestMessage]:
    """The messages of a request over `messages`, oldest first.

    Every string can be encoded, no message is empty, every call is followed by exactly its answer,
    call ids are distinct and arguments are JSON objects. Never raises for any content.

    Returns:
        `messages` itself if nothing has to change; else a new sequence that shares every message
        that needs no change.
    """
    return messages if sound_calls(messages) is not None else Derivation(messages).messages


def request_repairs(messages: Sequence[RequestMessage]) -> tuple[RequestRepair, ...]:
    """What `request_messages` would change, in the order of the messages; for logs and doctors."""
    return tuple(Derivation(messages).repairs())


def sound_calls(
    messages: Sequence[RequestMessage],
    judge: Callable[[RequestMessage], LocalVerdict] = local_verdict,
) -> set[str] | None:
    """The ids of the calls in messages that need no repair; `None` for others.

    Nearly all histories are sound, and this is a fifth of the cost of deriving them.

    Args:
        messages: The messages, oldest first.
        judge: Examines one; by default it remembers what it found.
    """
    ids: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        verdict = judge(message)
        if verdict.repairs:
            return None
        if message.role == "tool":
            answers = message.tool_call_id if isinstance(message, Message) else None
            if not waiting or waiting.pop() != answers:
                return None
        elif waiting:
            return None
        elif verdict.calls:
            new = set(verdict.calls)
            if len(new) < len(verdict.calls) or "" in new or not ids.isdisjoint(new):
                return None
            ids |= new
            waiting += reversed(verdict.calls)
    return None if waiting else ids


class _Call:
    """A tool call of the history: where it stands, its ids before and after, and its answer."""

    __slots__ = ("answer", "index", "new_id", "old_id")

    def __init__(self, index: int, old_id: str) -> None:
        self.index = index
        self.old_id = old_id
        self.new_id = old_id
        self.answer: int | None = None


class Derivation:
    """One run over a history. Messages are named by their place in it."""

    def __init__(self, messages: Sequence[RequestMessage]) -> None:
        self.originals = messages
        self.local: list[tuple[LocalRepair, ...]] = []
        self.clean: list[RequestMessage | None] = []
        self.calls: dict[int, list[_Call]] = {}
        self.unused: dict[int, CallId | None] = {}
        self._read()
        self._pair()
        self._rename()
        self.output: list[RequestMessage] = []
        self.places: list[int] = []
        self._write()

    def _read(self) -> None:
        for index, message in enumerate(self.originals):
            verdict = local_verdict(message)
            self.local.append(verdict.repairs)
            self.clean.append(None if verdict.dropped else verdict.message or message)
            if verdict.calls:
                self.calls[index] = [_Call(index, call_id) for call_id in verdict.calls]

    def _pair(self) -> None:
        waiting: dict[str, deque[_Call]] = {}
        first: dict[str, _Call] = {}
        early: list[tuple[int, CallId]] = []
        for index, message in enumerate(self.clean):
            if index in self.calls:
                self._open(self.calls[index], waiting, first)
            elif isinstance(message, Message) and message.role == "tool":
                call_id = message.tool_call_id
                if call_id is None:
                    self.unused[index] = None
                elif call_id not in waiting:
                    early.append((index, call_id))
                elif waiting[call_id]:
                    waiting[call_id].popleft().answer = index
                else:
                    self.unused[index] = call_id
        for index, early_id in early:
            call = first.get(early_id)
            if call is not None and call.answer is None:
                call.answer = index
            else:
                self.unused[index] = early_id

    @staticmethod
    def _open(
        calls: list[_Call], waiting: dict[str, deque[_Call]], first: dict[str, _Call]
    ) -> None:
        """From here on answers belong to these calls, no longer to older ones of the same ids."""
        fresh: dict[str, deque[_Call]] = {}
        for call in calls:
            fresh.setdefault(call.old_id, deque()).append(call)
            first.setdefault(call.old_id, call)
        waiting.update(fresh)

    def _rename(self) -> None:
        everything = [call for calls in self.calls.values() for call in calls]
        originals = {call.old_id for call in everything}
        taken: set[str] = set()
        counters: dict[str, int] = {}
        for call in everything:
            if call.old_id == "" or call.old_id in taken:
                call.new_id = _free_id(call.old_id, originals, taken, counters)
            taken.add(call.new_id)

    def _write(self) -> None:
        for index, message in enumerate(self.clean):
            if message is None or (isinstance(message, Message) and message.role == "tool"):
                continue
            calls = self.calls.get(index, ())
            self._put(_renamed(message, calls) if calls else message, index)
            for call in calls:
                self._put_answer(message, call)

    def _put(self, message: RequestMessage, place: int) -> None:
        self.output.append(message)
        self.places.append(place)

    def _put_answer(self, asking: RequestMessage, call: _Call) -> None:
        answer = None if call.answer is None else self.clean[call.answer]
        if call.answer is not None and isinstance(answer, Message):
            self._put(_addressed(answer, CallId(call.new_id)), call.answer)
        elif isinstance(asking, Message):
            self._put(_missing_answer(asking.id, CallId(call.new_id)), -1)

    @property
    def messages(self) -> Sequence[RequestMessage]:
        """The messages of the request: the very argument if nothing had to change."""
        before, after = self.originals, self.output
        if len(after) == len(before) and all(map(is_, after, before)):
            return before
        return tuple(after)

    @property
    def call_ids(self) -> set[str]:
        """All ids that calls or answers have, in the history or in the request."""
        ids: set[str] = {answer for answer in self.unused.values() if answer is not None}
        for calls in self.calls.values():
            for call in calls:
                ids |= {call.old_id, call.new_id}
        return ids

    def repairs(self) -> Iterator[RequestRepair]:
        """All changes, by the place of the message that they concern."""
        moved = self._moved()
        for index, message in enumerate(self.originals):
            message_id = message.id if isinstance(message, Message) else None
            for kind, call_id in self.local[index]:
                yield RequestRepair(kind, message_id, call_id)
            if index in self.unused:
                yield RequestRepair("answer-dropped", message_id, self.unused[index])
            if index in moved and isinstance(message, Message):
                yield RequestRepair("answer-moved", message_id, message.tool_call_id)
            for call in self.calls.get(index, ()):
                if call.new_id != call.old_id:
                    yield RequestRepair("call-renamed", message_id, CallId(call.old_id))
                if call.answer is None:
                    yield RequestRepair("answer-filled", message_id, CallId(call.old_id))

    def _moved(self) -> set[int]:
        """Answers that follow another message than before; dropped and filled ones count not."""
        after = [place for place in self.places if place >= 0]
        before = sorted(after)
        previous = dict(zip(before[1:], before, strict=False))
        answers = {call.answer for calls in self.calls.values() for call in calls}
        return {
            place
            for last, place in zip([None, *after], after, strict=False)
            if place in answers and previous.get(place) != last
        }


def _free_id(old: str, originals: set[str], taken: set[str], counters: dict[str, int]) -> str:
    base = old or "call"
    if not old and base not in originals and base not in taken:
        return base
    number = counters.get(base, 2)
    while (candidate := f"{base}~{number}") in originals or candidate in taken:
        number += 1
    counters[base] = number + 1
    return candidate


def _renamed(message: RequestMessage, calls: Sequence[_Call]) -> RequestMessage:
    if all(call.new_id == call.old_id for call in calls):
        return message
    remaining = iter(calls)
    content: list[ContentBlock] = []
    for block in message.content:
        if isinstance(block, ToolCallBlock):
            new_id = next(remaining).new_id
            content.append(block if block.id == new_id else replace(block, id=CallId(new_id)))
        else:
            content.append(block)
    return replace(message, content=tuple(content))


def _addressed(answer: Message, call_id: CallId) -> Message:
    if answer.tool_call_id == call_id:
        return answer
    source = answer.source
    if isinstance(source, ToolSource):
        source = replace(source, call_id=call_id)
    return replace(answer, tool_call_id=call_id, source=source)


def _missing_answer(asking: MessageId, call_id: CallId) -> Message:
    return Message(
        id=MessageId(f"missing-tool-result-{asking}-{call_id}"),
        role="tool",
        content=(TextBlock(MISSING_RESULT_TEXT),),
        source=ToolSource(call_id),
        tool_call_id=call_id,
        is_error=True,
    )
