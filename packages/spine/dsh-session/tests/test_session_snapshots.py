"""Snapshots of payloads: what is sound passes as it is, what is not is copied or refused (S23-S36)."""

from enum import IntEnum, StrEnum
from typing import Any

import msgspec
import pytest

from dsh_brand import FrozenDict, FrozenList, NotJsonError, freeze_json
from dsh_llm import (
    CallId,
    Message,
    MessageId,
    ModelSource,
    OpaqueBlock,
    TextBlock,
    TextChunks,
    TokenUsage,
    ToolSource,
    UserSource,
)
from dsh_session import (
    AssistantMessageEvent,
    InboxSpliced,
    InvalidEventError,
    SessionEventData,
    TodoItem,
    TodoWrite,
    ToolResultEvent,
    TurnStart,
    UserMessageEvent,
)
from dsh_session._freeze import freeze_payload  # noqa: PLC2701  # its two walks are what is tested
from dsh_session.testing import new_session, tool_message, user_message


class Word(StrEnum):
    A = "a"


class Number(IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


class Loose(msgspec.Struct):
    """Not frozen."""

    n: int = 1


def answer(**changes: Any) -> AssistantMessageEvent:  # fields by name
    message = Message(
        id=MessageId("m"),
        role="assistant",
        content=changes.pop("content", (TextBlock("a"),)),
        source=ModelSource(provider="p", model="m"),
    )
    record = TextChunks(0, 0, changes.pop("dt", (1,)), changes.pop("texts", ("a", "b")))
    return AssistantMessageEvent(turn=1, step=1, message=message, stream=(record,), **changes)


def note(content: Any, **changes: Any) -> UserMessageEvent:  # of any type, to be judged
    return UserMessageEvent(
        message=Message(
            id=MessageId("m"), role="user", content=content, source=UserSource(), **changes
        )
    )


SOUND: list[SessionEventData] = [
    TurnStart(turn=1),
    answer(usage=TokenUsage(input_tokens=1, output_tokens=2)),
    note((TextBlock("a"), OpaqueBlock(extra=freeze_json({"type": "x", "n": [1]})))),  # type: ignore[arg-type]  # an object gives one
    InboxSpliced(target="next-turn", start=0, inserted=(user_message(),)),
    ToolResultEvent(turn=1, step=1, message=tool_message("c"), meta=freeze_json({"a": [1]})),
]


@pytest.fixture(autouse=True, params=["first met", "known"])
def _classes_known(request: pytest.FixtureRequest) -> None:
    """The short walk judges classes that the thorough one has met."""
    if request.param == "known":
        for payload in SOUND:
            freeze_payload(payload)


@pytest.mark.parametrize("payload", SOUND, ids=lambda payload: type(payload).__name__)
def test_S31_S51_what_is_sound_is_stored_as_it_is(payload: SessionEventData) -> None:
    assert freeze_payload(payload) is payload


@pytest.mark.parametrize(
    "bad",
    [
        b"x",
        {1},
        1.5j,
        Word.A,
        Number.ONE,
        Text("a"),
        Loose(),
        2**53,
        float("nan"),
        object(),
        {"a": b"x"},
        [Word.A],
        (2**53,),
        (1, "a", b"x"),
        ("a", Text("a")),
        msgspec.UNSET,
    ],
    ids=repr,
)
def test_S24_nothing_else_passes_wherever_it_stands(bad: Any) -> None:  # what is tested
    places: list[SessionEventData] = [
        answer(content=(TextBlock("a"), bad)),
        answer(texts=(bad,)),
        answer(texts=("a", bad)),
        answer(dt=(1, bad)),
        TodoWrite(todos=(bad,)),
        TodoWrite(todos=(TodoItem(content="a", status="b"), bad)),
        ToolResultEvent(turn=1, step=1, message=tool_message("c"), meta=[bad]),
    ]
    if bad is not msgspec.UNSET:
        places += [TurnStart(turn=bad), note((TextBlock(bad),)), answer(usage=bad)]
        places += [TurnStart(turn=1, extra={"n": bad})]
    for payload in places:
        with pytest.raises(NotJsonError):
            freeze_payload(payload)


def test_S24_S174_extra_fields_are_no_struct() -> None:
    extra: Any = TextBlock("a")  # what is tested
    session = new_session()
    for payload in (TurnStart(turn=1, extra=extra), note((TextBlock("a", extra=extra),))):
        with pytest.raises(InvalidEventError):
            session.append(payload, surface_op="append" if payload.surface else None)


def test_S31_S36_what_can_change_is_copied_into_what_cannot() -> None:
    item = TodoItem(content="a", status="b")
    todos, blocks, texts = [item], [TextBlock("a")], ["a", "b"]
    meta = {"a": ({"b": [1]},)}
    written = freeze_payload(TodoWrite(todos=todos))  # type: ignore[arg-type]  # what is tested
    spliced = freeze_payload(InboxSpliced(target="next-turn", start=0, inserted=[user_message()]))  # type: ignore[arg-type]  # what is tested
    said = freeze_payload(answer(content=blocks, texts=texts))
    result = freeze_payload(ToolResultEvent(turn=1, step=1, message=tool_message("c"), meta=meta))
    todos.clear()
    blocks.clear()
    texts.clear()
    meta.clear()
    assert isinstance(written, TodoWrite)
    assert written.todos == (item,)
    assert written.todos[0] is item
    assert isinstance(spliced, InboxSpliced)
    assert type(spliced.inserted) is tuple
    assert said == answer()
    assert isinstance(result, ToolResultEvent)
    assert isinstance(result.meta, FrozenDict)
    assert isinstance(result.meta["a"], FrozenList)
    assert result.meta == {"a": [{"b": [1]}]}


def test_S24_the_place_of_what_is_wrong_is_told() -> None:
    with pytest.raises(NotJsonError) as refused:
        freeze_payload(answer(content=(TextBlock("a"), TextBlock(2**60))))  # type: ignore[arg-type]  # what is tested
    assert refused.value.path == "message.content[1].text"
    with pytest.raises(NotJsonError, match=r"Loose.* which is not frozen"):
        freeze_payload(note((Loose(),)))


def test_S24_a_source_is_looked_into() -> None:
    message = tool_message("c")
    broken = msgspec.structs.replace(message, source=ToolSource(CallId(Text("c"))))
    with pytest.raises(NotJsonError):
        freeze_payload(ToolResultEvent(turn=1, step=1, message=broken))
