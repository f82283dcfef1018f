"""Histories that grow: what a request needs of them is worked out once per message (L197, L210)."""

from collections.abc import AsyncIterator, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from typing_extensions import override

from dsh_brand import freeze_object
from dsh_cordis import Context
from dsh_llm import (
    CallId,
    GenerateOptions,
    LlmResolvedModelInfo,
    LlmService,
    LoggedMessages,
    Message,
    MessageId,
    MessageLog,
    ModelSource,
    OpaqueBlock,
    ReplayEnvelope,
    RequestLog,
    RequestMessage,
    SystemPromptSource,
    TextBlock,
    ToolCallBlock,
    ToolRegistrySource,
    ToolSource,
    UserSource,
    collect,
    create_user_message,
    folded,
    leading_prompt,
    mapped,
    request_messages,
    request_repairs,
)
from dsh_llm.testing import FakeAdapter, check_request


def user(name: str, text: str = "hi") -> Message:
    content = (TextBlock(text),) if text else ()
    return Message(id=MessageId(name), role="user", content=content, source=UserSource())


def asking(name: str, *ids: str, arguments: str = "{}", state: bool = False) -> Message:
    envelope = ReplayEnvelope({"s": 1}) if state else None
    blocks = tuple(ToolCallBlock(CallId(call_id), "ls", arguments) for call_id in ids)
    return Message(
        id=MessageId(name),
        role="assistant",
        content=(TextBlock("ok"), *blocks),
        source=ModelSource("p", "m", envelope),
    )


def answer(name: str, call_id: str) -> Message:
    return Message(
        id=MessageId(name),
        role="tool",
        content=(TextBlock("done"),),
        source=ToolSource(CallId(call_id)),
        tool_call_id=CallId(call_id),
        is_error=False,
    )


def prompt(name: str, text: str) -> Message:
    content = (TextBlock(text),) if text else ()
    return Message(id=MessageId(name), role="system", content=content, source=SystemPromptSource())


def image(name: str) -> Message:
    block = OpaqueBlock(extra=freeze_object({"type": "image", "attachment": {"sha": "a" * 64}}))
    return Message(id=MessageId(name), role="user", content=(block,), source=UserSource())


def change(name: str) -> Message:
    return Message(
        id=MessageId(name),
        role="developer",
        content=(TextBlock("a tool came"),),
        source=ToolRegistrySource(),
    )


class Seen:
    """A fold that remembers what it was given."""

    def __init__(self) -> None:
        self.messages: list[RequestMessage] = []
        self.asked = 0

    def extend(self, messages: Sequence[RequestMessage]) -> None:
        self.asked += 1
        self.messages += messages


IDS = st.sampled_from(["x", "y", "x~2", ""])
FRESH = st.uuids().map(str)
ANY_ID = st.one_of(FRESH, FRESH, FRESH, IDS)
ROUNDS: st.SearchStrategy[list[Message]] = st.builds(
    lambda ids, arguments, spoiled: [
        asking("a", *ids, arguments=arguments, state=True),
        *(answer(f"t{place}", call_id) for place, call_id in enumerate(ids)),
    ][: None if not spoiled else -1],
    st.lists(ANY_ID, max_size=2),
    st.sampled_from(["{}", "{}", "[1"]),
    st.sampled_from([False, False, False, True]),
)
PARTS: st.SearchStrategy[list[Message]] = st.one_of(
    ROUNDS,
    ROUNDS,
    st.sampled_from(["hi", "", "\ud800"]).map(lambda text: [user("u", text)]),
    IDS.map(lambda call_id: [answer("t", call_id)]),
    st.sampled_from(["be brief", ""]).map(lambda text: [prompt("p", text)]),
    st.sampled_from([[image("i")], [change("d")], []]),
)
PIECES = st.lists(PARTS, max_size=8)


@given(PIECES)
@example([[asking("a", "x")], [answer("t", "x")], [asking("b", "y"), answer("t2", "y")]])
@example([[answer("t", "x")], [asking("a", "x"), answer("t2", "x")]])
@example([[asking("a", "x", "x")], [asking("b", "x~2"), answer("t", "x~2")]])
def test_L197_L210_a_growing_history_gives_the_requests_of_the_whole(
    pieces: list[list[Message]],
) -> None:
    log, whole = RequestLog(), list[RequestMessage]()
    for piece in pieces:
        log.extend(piece)
        whole += piece
        sent = log.messages()
        assert sent == request_messages(whole)
        assert log.repairs() == request_repairs(whole)
        check_request(sent)
    assert len(log) == len(whole)


def test_L199_sound_messages_pass_a_growing_history_as_they_are() -> None:
    history = [user("u"), asking("a", "x"), answer("t", "x"), user("v")]
    log = RequestLog(history[:1])
    early = log.messages()
    log.extend(history[1:])
    sent = log.messages()
    assert list(map(id, sent)) == list(map(id, history))
    assert early == (history[0],)


def test_L210_what_was_derived_is_not_looked_at_again() -> None:
    log = RequestLog()
    looks = 0

    def looked(message: RequestMessage) -> RequestMessage:
        nonlocal looks
        looks += 1
        return message

    for turn in range(50):
        bad = "[1" if turn == 7 else "{}"
        log.extend([asking("a", f"c{turn}", arguments=bad), answer("t", f"c{turn}")])
        sent = log.messages()
        assert mapped(sent, "looked", lambda: looked) is sent
        assert len(sent) == 2 * turn + 2
    assert looks == 100


def test_a_damaged_history_is_derived_as_a_whole_once_and_grows_on_from_there() -> None:
    log = RequestLog([asking("a", "x"), user("u")])  # this call never gets its answer
    first = log.messages()
    assert [message.role for message in first] == ["assistant", "tool", "user"]
    for turn in range(3):
        log.extend([asking("b", f"c{turn}"), answer("t", f"c{turn}")])
        assert log.messages()[1] is first[1]
    assert [repair.kind for repair in log.repairs()] == ["answer-filled"]


def test_a_view_is_a_sequence_of_the_messages_it_was_taken_of() -> None:
    history = [user(str(number)) for number in range(5)]
    log = MessageLog(history)
    view = log.view()
    log.extend([user("later")])
    assert view == tuple(history)
    assert view == history
    assert view != log.view()
    assert (view == "messages") is False
    assert hash(view) == hash(tuple(history))
    assert len(view) == 5
    assert list(view) == history
    assert list(reversed(view)) == history[::-1]
    assert (view[0], view[-1]) == (history[0], history[4])
    for part in (slice(3, None), slice(None, -2), slice(None, None, -1), slice(9, None)):
        assert view[part] == tuple(history[part])
    with pytest.raises(IndexError):
        view[5]
    assert "5 logged messages" in repr(view)


def test_a_request_takes_a_view_as_it_is_and_copies_a_list() -> None:
    view = MessageLog([user("u")]).view()
    assert GenerateOptions(provider="p", model="m", messages=view).messages is view
    given_list = [user("u")]
    assert GenerateOptions(provider="p", model="m", messages=given_list).messages == (user("u"),)


def test_a_fold_is_fed_only_what_is_new() -> None:
    log = MessageLog([user("a")])
    first = folded(log.view(), "key", Seen)
    log.extend([user("b"), user("c")])
    assert folded(log.view(), "key", Seen) is first
    assert [message.content for message in first.messages] == [user("x").content] * 3
    assert folded(log.view(), "key", Seen).asked == 2
    assert folded(log.view(), "another", Seen) is not first


def test_an_older_view_gets_a_fold_of_its_own() -> None:
    log = MessageLog([user("a")])
    early = log.view()
    log.extend([user("b")])
    late = folded(log.view(), "key", Seen)
    assert folded(early, "key", Seen).messages == [user("a")]
    assert folded(log.view(), "key", Seen) is late


def test_a_fold_that_broke_off_is_made_anew() -> None:
    class Fussy(Seen):
        @override
        def extend(self, messages: Sequence[RequestMessage]) -> None:
            super().extend(messages)
            if any(not message.content for message in messages):
                raise ValueError("empty")

    log = MessageLog([user("a")])
    early = log.view()
    known = folded(early, "key", Fussy)
    log.extend([user("b", "")])
    with pytest.raises(ValueError, match="empty"):
        folded(log.view(), "key", Fussy)
    assert folded(early, "key", Fussy) is not known
    assert folded(early, "key", Fussy).messages == [user("a")]


def test_few_folds_are_kept() -> None:
    view = MessageLog([user("a")]).view()
    first = folded(view, 0, Seen)
    for key in range(1, 8):
        folded(view, key, Seen)
    assert folded(view, 0, Seen) is first
    for key in range(8, 16):
        folded(view, key, Seen)
    assert folded(view, 0, Seen) is not first


@given(PIECES, st.booleans(), st.sampled_from([None, "opt"]))
def test_L169_the_prompt_of_a_growing_history_is_that_of_the_whole(
    pieces: list[list[Message]], in_history: bool, system: str | None
) -> None:
    log, whole = MessageLog(), list[RequestMessage]()
    for piece in pieces:
        log.extend(piece)
        whole += piece
        grown = leading_prompt(log.view(), system, in_history=in_history)
        assert grown == leading_prompt(whole, system, in_history=in_history)


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    async with Context() as root:
        yield root


@pytest.mark.parametrize("modalities", [("text",), ("text", "image")])
async def test_L63_L172_a_growing_history_reaches_the_adapter_as_the_whole_would(
    ctx: Context, modalities: tuple[str, ...]
) -> None:
    await ctx.plugin(LlmService)
    llm = ctx.get(LlmService)
    assert llm is not None
    adapter = FakeAdapter()
    adapter.info = LlmResolvedModelInfo("r", "m", "m", input_modalities=modalities)
    llm.register_adapter(["r"], adapter)
    log, whole = MessageLog(), list[RequestMessage]()
    rounds = [
        [user("u")],
        [asking("a", state=True), image("i")],
        [change("d")],
        [user("v"), asking("b", "x", state=True), answer("t", "x")],
    ]
    before: Sequence[RequestMessage] = ()
    for piece in rounds:
        log.extend(piece)
        whole += piece
        for messages in (log.view(), tuple(whole)):
            options = GenerateOptions(provider="r", model="m", messages=messages)
            await collect(llm.stream(options))
        grown, plain = adapter.requests[-2:]
        assert grown.messages == plain.messages
        # The copies are made once: what encoded them by identity need not do it again.
        assert all(new is old for new, old in zip(grown.messages, before, strict=False))
        before = grown.messages
    assert isinstance(before, LoggedMessages)
    assert log.view() == tuple(whole)


async def test_L62_a_view_that_needs_no_change_makes_no_new_request(ctx: Context) -> None:
    await ctx.plugin(LlmService)
    llm = ctx.get(LlmService)
    assert llm is not None
    adapter = FakeAdapter()
    llm.register_adapter(["p"], adapter)
    messages = MessageLog([create_user_message("hi"), asking("a", state=True)]).view()
    options = GenerateOptions(provider="p", model="m", messages=messages)
    await collect(llm.stream(options))
    assert adapter.requests == [options]
    assert adapter.requests[0] is options
