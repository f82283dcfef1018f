"""Request derivation: whatever is in the log, the request is valid."""

import gc
from collections.abc import Sequence
from typing import get_args

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dsh_brand import encode, freeze_object, from_json, replace, to_json
from dsh_llm import (
    MISSING_RESULT_TEXT,
    Block,
    CallId,
    Message,
    MessageId,
    MessageSource,
    ModelSource,
    OpaqueBlock,
    OpaqueSource,
    ReasoningBlock,
    RepairKind,
    ReplayEnvelope,
    RequestMessage,
    RequestUserInput,
    Role,
    SystemPromptSource,
    TextBlock,
    ToolCallBlock,
    ToolSource,
    UserSource,
    request_messages,
    request_repairs,
)
from dsh_llm._local_repairs import _memory, is_object_text  # noqa: PLC2701  # the cache has no other sight
from dsh_llm.testing import check_request, request_problems

SOURCES: dict[str, MessageSource] = {
    "assistant": ModelSource("p", "m"),
    "system": SystemPromptSource(),
    "user": UserSource(),
    "developer": UserSource(),
}


def message(name: str, role: Role, *blocks: Block) -> Message:
    return Message(id=MessageId(name), role=role, content=blocks, source=SOURCES[role])


def text(name: str, role: Role = "user", words: str = "hi") -> Message:
    return message(name, role, TextBlock(words))


def calls(name: str, *pairs: tuple[str, str]) -> Message:
    blocks = (ToolCallBlock(CallId(call_id), "ls", arguments) for call_id, arguments in pairs)
    return message(name, "assistant", *blocks)


def answer(name: str, call_id: str, *blocks: Block) -> Message:
    return Message(
        id=MessageId(name),
        role="tool",
        content=blocks,
        source=ToolSource(CallId(call_id)),
        tool_call_id=CallId(call_id),
        is_error=False,
    )


def ok(name: str, call_id: str) -> Message:
    return answer(name, call_id, TextBlock("ok"))


def test_L212_the_worked_example() -> None:
    t0 = ok("t0", "w")
    u1 = text("u1")
    a1 = calls("a1", ("x", '{"q":1}'), ("y", "[1"))
    u2 = text("u2")
    t1 = ok("t1", "y")
    t2 = ok("t2", "z")
    a2 = calls("a2", ("x", ""), ("x~2", "{ }"))
    t3 = answer("t3", "x")
    t4 = ok("t4", "x")
    a3 = message("a3", "assistant")
    a4 = calls("a4", ("w", "{}"))
    history = [t0, u1, a1, u2, t1, t2, a2, t3, t4, a3, a4]

    out = request_messages(history)

    def filled(asking: str, call_id: str) -> Message:
        name = f"missing-tool-result-{asking}-{call_id}"
        return replace(answer(name, call_id, TextBlock(MISSING_RESULT_TEXT)), is_error=True)

    assert list(out) == [
        u1,
        calls("a1", ("x", '{"q":1}'), ("y", "{}")),
        filled("a1", "x"),
        t1,
        u2,
        calls("a2", ("x~3", "{}"), ("x~2", "{ }")),
        answer("t3", "x~3", TextBlock("(no content)")),
        filled("a2", "x~2"),
        a4,
        t0,
    ]
    for kept in (u1, t1, u2, a4, t0):
        assert any(m is kept for m in out)
    assert out[1].content[0] is a1.content[0]
    assert [(r.kind, r.message_id, r.call_id) for r in request_repairs(history)] == [
        ("answer-moved", "t0", "w"),
        ("arguments-replaced", "a1", "y"),
        ("answer-filled", "a1", "x"),
        ("answer-moved", "t1", "y"),
        ("answer-dropped", "t2", "z"),
        ("arguments-replaced", "a2", "x"),
        ("call-renamed", "a2", "x"),
        ("answer-filled", "a2", "x~2"),
        ("content-filled", "t3", None),
        ("answer-dropped", "t4", "x"),
        ("message-dropped", "a3", None),
    ]
    check_request(out)
    assert request_messages(out) is out


def test_L199_what_needs_no_change_comes_back_itself() -> None:
    history = [text("s", "system"), text("u"), calls("a", ("x", "{}")), ok("t", "x")]
    assert request_messages(history) is history
    assert request_repairs(history) == ()
    assert request_messages([]) == []


def named(messages: Sequence[RequestMessage]) -> list[str | None]:
    return [m.id if isinstance(m, Message) else None for m in messages]


def test_L200_answers_follow_their_calls_and_what_stood_between_follows_them() -> None:
    history = [
        calls("a1", ("x", "{}"), ("y", "{}"), ("z", "{}")),
        text("u1"),
        ok("t-z", "z"),
        text("s1", "system"),
        calls("a2", ("v", "{}")),
        text("d1", "developer"),
        ok("t-y", "y"),
        text("u2"),
        ok("t-v", "v"),
        ok("t-x", "x"),
    ]
    out = request_messages(history)
    assert named(out) == ["a1", "t-x", "t-y", "t-z", "u1", "s1", "a2", "t-v", "d1", "u2"]
    assert all(any(kept is m for m in history) for kept in out)


def test_L200_a_lone_message_between_call_and_answer_follows_them() -> None:
    asked, said, answered = calls("a", ("x", "{}")), text("u"), ok("t", "x")
    assert request_messages([asked, said, answered]) == (asked, answered, said)


def test_L202_an_answer_that_no_call_waits_for_is_left_out() -> None:
    history = [
        ok("stranger", "w"),
        calls("a1", ("x", "{}"), ("x", "{}"), ("y", "{}")),
        ok("first", "x"),
        ok("second", "x"),
        ok("one-too-many", "x"),
        ok("t-y", "y"),
        ok("repeat", "y"),
        replace(ok("of-no-call", "y"), tool_call_id=None),
    ]
    out = request_messages(history)
    assert named(out) == ["a1", "first", "second", "t-y"]
    check_request(out)
    dropped = [(r.message_id, r.call_id) for r in request_repairs(history) if "drop" in r.kind]
    assert dropped == [
        ("stranger", "w"),
        ("one-too-many", "x"),
        ("repeat", "y"),
        ("of-no-call", None),
    ]


def test_L203_a_call_without_an_answer_gets_one_that_says_so() -> None:
    history = [calls("a1", ("x", "{}")), text("u1"), calls("a2", ("x", "{}"), ("", "{}"))]
    out = request_messages(history)
    asked = [("a1", "x"), ("a2", "x~2"), ("a2", "call")]
    filled = [m for m in out if m.role == "tool"]
    assert filled == [
        Message(
            id=MessageId(f"missing-tool-result-{asking}-{call_id}"),
            role="tool",
            content=(TextBlock(MISSING_RESULT_TEXT),),
            source=ToolSource(CallId(call_id)),
            tool_call_id=CallId(call_id),
            is_error=True,
        )
        for asking, call_id in asked
    ]
    assert "not recorded" in MISSING_RESULT_TEXT
    check_request(out)


def test_L201_a_reused_id_answers_the_newer_step() -> None:
    history = [
        calls("a1", ("x", "{}")),
        calls("a2", ("x", "{}")),
        ok("t1", "x"),
        ok("t2", "x"),
    ]
    out = request_messages(history)
    assert [m.id for m in out if isinstance(m, Message)] == [
        "a1",
        "missing-tool-result-a1-x",
        "a2",
        "t1",
    ]
    check_request(out)


def test_L201_an_early_answer_serves_a_later_call_only_if_no_other_does() -> None:
    early, late = ok("early", "x"), ok("late", "x")
    first = request_messages([early, calls("a", ("x", "{}")), late])
    assert [m.id for m in first if isinstance(m, Message)] == ["a", "late"]
    second = request_messages([early, ok("second", "x"), calls("a", ("x", "{}"))])
    assert [m.id for m in second if isinstance(m, Message)] == ["a", "early"]


def test_L204_repeated_and_empty_ids_get_free_ones() -> None:
    history = [
        calls(
            "a", ("", "{}"), ("x", "{}"), ("x", "{}"), ("call~2", "{}"), ("", "{}"), ("x~2", "{}")
        ),
        ok("t1", ""),
        ok("t2", "x"),
        ok("t3", "x"),
    ]
    out = request_messages(history)
    ids = [block.id for block in out[0].content if isinstance(block, ToolCallBlock)]
    assert ids == ["call", "x", "x~3", "call~2", "call~3", "x~2"]
    third = out[3]
    assert isinstance(third, Message)
    assert (third.id, third.tool_call_id, third.source) == ("t3", "x~3", ToolSource(CallId("x~3")))
    check_request(out)


@pytest.mark.parametrize("ids", [("x", "x"), ("", "y")])
def test_L204_ids_of_answered_calls_are_made_distinct_too(ids: tuple[str, str]) -> None:
    first, second = ids
    history = [calls("a", (first, "{}")), ok("t", first), calls("b", (second, "{}"))]
    check_request(request_messages([*history, ok("u", second)]))
    check_request(request_messages([calls("a", *((i, "{}") for i in ids)), *map(ok, "tu", ids)]))


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param("", id="empty"),
        pytest.param("\ufeff{}", id="mark"),
        pytest.param('{"a":1', id="cut"),
        pytest.param("{} x", id="trailing"),
        pytest.param("null", id="null"),
        pytest.param("[]", id="list"),
        pytest.param('"{}"', id="string"),
        pytest.param('{"a":NaN}', id="nan"),
        pytest.param('{"a":[{"b":1e400}]}', id="beyond-a-double"),
        pytest.param('{"a":-1E+0400}', id="beyond-a-double-below"),
        pytest.param('{"a":1' + "0" * 309 + ".5}", id="beyond-a-double-in-digits"),
        pytest.param('{"a":1' + "0" * 309 + "}", id="an-integer-beyond-a-double"),
        pytest.param('{"a":"\n"}', id="control"),
        pytest.param('{"a":' + "[" * 600 + "]" * 600 + "}", id="deep"),
        pytest.param('{"a":' + "[" * 60_000 + "]" * 60_000 + "}", id="very-deep"),
    ],
)
def test_L205_arguments_that_are_no_object_are_replaced(arguments: str) -> None:
    assert not is_object_text(arguments)


@pytest.mark.parametrize(
    "arguments",
    [' { "b" : 1 ,\n"a": 2 } ', '{"a":1,"a":2}', '{"a":"\\ud83d"}', '{"a":"[[[["}', '{"n":1e5}',
     '{"n":1e-400,"m":1e+0005}', '{"s":"1e400"}', '{"s":"[[","n":' + "[" * 511 + "1" + "]" * 511 + "}"],
)  # fmt: skip
def test_L205_objects_are_kept_as_they_are_written(arguments: str) -> None:
    history = [calls("a", ("x", arguments)), ok("t", "x")]
    assert request_messages(history) is history
    check_request(history)


def test_L206_unknown_blocks_and_calls_elsewhere_pass() -> None:
    odd = OpaqueBlock(extra=freeze_object({"type": "hologram"}))
    stray = ToolCallBlock(CallId("x"), "ls", "no json")
    history = [message("u", "user", odd, stray), calls("a", ("x", "{}")), ok("t", "x")]
    assert request_messages(history) is history


def test_L207_no_message_is_empty() -> None:
    history: Sequence[RequestMessage] = [
        message("s", "system"),
        message("d", "developer"),
        message("u", "user"),
        RequestUserInput(content=()),
        message("kept", "user", TextBlock("")),
    ]
    out = request_messages(history)
    assert [m.content for m in out] == [
        (TextBlock("(no content)"),),
        (TextBlock("(no content)"),),
        (TextBlock(""),),
    ]
    assert [r.kind for r in request_repairs(history)] == [
        "message-dropped",
        "message-dropped",
        "content-filled",
        "content-filled",
    ]


def test_L208_every_string_can_be_encoded() -> None:
    source = ModelSource("p", "m", ReplayEnvelope({"sig": 1}))
    broken = replace(message("a\ud800", "assistant", TextBlock("a\ud83d")), source=source)
    odd = OpaqueBlock(extra=freeze_object({"type": "x", "deep": [[{"k\ud800": "\ud83d\ude00"}]]}))
    kept = replace(message("b", "assistant", TextBlock("fine"), odd), source=source)
    out = request_messages([broken, kept])
    first, second = out
    assert isinstance(first, Message)
    assert isinstance(second, Message)
    assert (first.id, first.content) == ("a\ufffd", (TextBlock("a\ufffd"),))
    assert first.source == ModelSource("p", "m")
    assert second.source is source
    assert second.content[0] is kept.content[0]
    block = second.content[1]
    assert isinstance(block, OpaqueBlock)
    assert block.raw == {"type": "x", "deep": [[{"k\ufffd": "😀"}]]}
    check_request(out)


def test_L208_deep_values_are_no_recursion_error() -> None:
    deep: object = "\ud800"
    for _ in range(3000):
        deep = [deep]
    history = [message("u", "user", OpaqueBlock(extra=freeze_object({"type": "x", "d": deep})))]
    check_request(request_messages(history))


def test_L210_the_verdict_is_remembered_weakly() -> None:
    old = message("u", "user")
    assert request_messages([old])[0] is request_messages([old])[0]
    gc.collect()
    known = len(_memory)
    assert _memory.get(old) is not None
    del old
    gc.collect()
    assert len(_memory) == known - 1


IDS = st.sampled_from(["", "x", "y", "x~2", "call"])
ARGUMENTS = st.sampled_from(["{}", "", "[1", '{"a":1}', "null"])
TEXTS = st.text(st.characters(codec=None, exclude_categories=()), max_size=3)
BLOCKS: st.SearchStrategy[Block] = st.one_of(
    st.builds(TextBlock, TEXTS),
    st.builds(ReasoningBlock, TEXTS),
    st.builds(ToolCallBlock, IDS.map(CallId), TEXTS, ARGUMENTS),
)


@st.composite
def histories(draw: st.DrawFn) -> list[RequestMessage]:
    history: list[RequestMessage] = []
    for place in range(draw(st.integers(0, 10))):
        role: Role = draw(
            st.sampled_from(["user", "assistant", "assistant", "tool", "tool", "system"])
        )
        blocks = draw(st.lists(BLOCKS, max_size=3))
        if role == "tool":
            history.append(answer(f"m{place}", draw(IDS), *blocks))
        else:
            history.append(message(f"m{place}", role, *blocks))
    return history


@given(histories())
def test_L198_A113_any_history_gives_a_valid_request(history: list[RequestMessage]) -> None:
    before = list(history)
    out = request_messages(history)
    assert history == before
    check_request(out)
    assert request_messages(out) is out
    assert request_repairs(out) == ()
    assert (request_repairs(history) == ()) == (out is history)
    assert request_messages(history) == out


NESTED = st.recursive(
    TEXTS | st.none() | st.integers(-9, 9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
RAW = st.builds(
    lambda kind, value: OpaqueBlock(extra=freeze_object({"type": kind, "v": value})), TEXTS, NESTED
)
WILD: st.SearchStrategy[RequestMessage] = st.one_of(
    st.builds(
        Message,
        id=TEXTS.map(MessageId),
        role=st.sampled_from(("system", "developer", "user", "assistant", "tool")),
        content=st.lists(st.one_of(BLOCKS, RAW), max_size=3).map(tuple),
        source=st.one_of(
            st.sampled_from(list(SOURCES.values())),
            IDS.map(CallId).map(ToolSource),
            NESTED.map(lambda v: ModelSource("p", "m", ReplayEnvelope({"v": v}))),
            NESTED.map(lambda v: OpaqueSource(extra=freeze_object({"kind": "odd", "v": v}))),
        ),
        tool_call_id=st.none() | IDS.map(CallId),
        is_error=st.none() | st.booleans(),
    ),
    st.builds(RequestUserInput, content=st.lists(BLOCKS, max_size=2).map(tuple)),
)


@given(st.lists(WILD, max_size=8))
@example([calls("a", ("x", "[1"), ("x", "{}")), text("u", words="\ud800"), ok("t", "x")])
@example([replace(ok("t", "x"), tool_call_id=None), message("s", "system")])
def test_L197_nothing_raises_is_changed_or_depends_on_anything_else(
    history: list[RequestMessage],
) -> None:
    places, stored = [id(m) for m in history], encode(history)
    out = request_messages(history)
    assert ([id(m) for m in history], encode(history)) == (places, stored)
    check_request(out)
    # Equal messages that were never seen before give the same request.
    again = [from_json(type(m), to_json(m)) for m in history]
    assert (
        request_messages(again) == out if out is not history else request_messages(again) is again
    )


KINDS = get_args(RepairKind)


@given(histories())
def test_L209_repairs_stand_in_the_order_of_the_messages(history: list[RequestMessage]) -> None:
    names = named(history)
    repairs = request_repairs(history)
    places = [names.index(repair.message_id) for repair in repairs]
    assert places == sorted(places)
    assert {repair.kind for repair in repairs} <= set(KINDS)


def test_L209_each_kind_of_repair_is_told_with_message_and_call() -> None:
    history = [
        text("u1", words="a\ud83d"),
        message("u2", "user"),
        message("s1", "system"),
        calls("a1", ("x", "{}"), ("x", "[]")),
        text("u3"),
        ok("t1", "x"),
        ok("t2", "w"),
    ]
    assert [(r.kind, r.message_id, r.call_id) for r in request_repairs(history)] == [
        ("text-replaced", "u1", None),
        ("content-filled", "u2", None),
        ("message-dropped", "s1", None),
        ("arguments-replaced", "a1", "x"),
        ("call-renamed", "a1", "x"),
        ("answer-filled", "a1", "x"),
        ("answer-moved", "t1", "x"),
        ("answer-dropped", "t2", "w"),
    ]
    assert sorted(KINDS) == sorted({r.kind for r in request_repairs(history)})


@given(histories())
def test_L199_messages_keep_their_order_and_identity(history: list[RequestMessage]) -> None:
    out = request_messages(history)
    spoken = [m.id for m in out if isinstance(m, Message) and m.role != "tool"]
    expected = [
        m.id
        for m in history
        if isinstance(m, Message) and m.role != "tool" and (m.content or m.role == "user")
    ]
    assert spoken == expected


def test_L211_the_checker_sees_each_fault() -> None:
    faults: list[list[RequestMessage]] = [
        [calls("a", ("x", "{}"))],
        [ok("t", "x")],
        [calls("a", ("x", "{}"), ("x", "{}")), ok("t", "x"), ok("u", "x")],
        [calls("a", ("", "{}")), ok("t", "")],
        [calls("a", ("x", "[]")), ok("t", "x")],
        [calls("a", ("x", "{}")), text("u"), ok("t", "x")],
        [message("u", "user")],
        [text("u", words="\ud800")],
    ]
    assert all(request_problems(fault) for fault in faults)
    with pytest.raises(AssertionError, match="no answer"):
        check_request(faults[0])
