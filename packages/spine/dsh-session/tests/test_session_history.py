"""What is appended, derived, closed and announced, rule by rule (S28-S95)."""

from collections.abc import Callable, Iterator

import anyio
import msgspec
import pytest

from dsh_brand import FrozenDict, freeze_json
from dsh_cordis import Context
from dsh_llm import (
    CallId,
    LlmCallConfig,
    Message,
    MessageId,
    OpaqueBlock,
    TextBlock,
    ToolAdditionBlock,
    ToolCallBlock,
    ToolRemovalBlock,
    ToolSchema,
)
from dsh_session import (
    AssistantMessageEvent,
    DeveloperMessageEvent,
    EventData,
    Forked,
    InvalidEventError,
    InvalidLogError,
    ReplaceOp,
    RequestHeader,
    RequestHeaderEvent,
    Session,
    SessionDisposed,
    SessionEvent,
    SessionEventData,
    SessionHeader,
    SessionId,
    SessionStore,
    StepStart,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
    build_fork_seed,
    event_from_json,
    interrupted_turn_closers,
)
from dsh_session.testing import (
    append_turn,
    assistant_message,
    new_session,
    system_message,
    tool_message,
    user_message,
)

SEEDED = SessionHeader(id=SessionId("test"), created_at=0, is_seeded=True)


def put(session: Session, *data: SessionEventData) -> None:
    for item in data:
        session.append(item, surface_op="append" if item.surface else None)


def answer(session: Session, message: Message, *, interrupted: bool | None = None) -> SessionEvent:
    data = AssistantMessageEvent(
        turn=1, step=1, message=message, stream=(), interrupted=interrupted
    )
    return session.append(data, surface_op="append")


def test_S28_what_is_checked_is_what_is_stored() -> None:
    session = new_session()
    put(session, *(UserMessageEvent(message=user_message(id=f"u{n}")) for n in range(3)))
    once: Iterator[int] = iter([2, 0, 1])
    event = session.append(
        UserMessageEvent(message=user_message(id="k")),
        surface_op=ReplaceOp(start_seq=0, end_seq=2),
        source_event_seqs=once,
    )
    assert event.source_event_seqs == (2, 0, 1)
    assert list(once) == []
    copied = Session.create(SessionId("copy"), (item for item in session.events))
    assert copied.events[:4] == session.events[:4]
    blocks: list[TextBlock] = [TextBlock(text="one")]
    message = msgspec.structs.replace(user_message(id="late"), content=blocks)
    stored = session.append(UserMessageEvent(message=message), surface_op="append").data
    blocks.append(TextBlock(text="two"))
    assert isinstance(stored, UserMessageEvent)
    assert stored.message.content == (TextBlock(text="one"),)


@pytest.mark.parametrize(
    ("refuse", "words"),
    [
        pytest.param(
            lambda s: s.append(UserMessageEvent(message=user_message())),
            "needs surfaceOp",
            id="surface-without",
        ),
        pytest.param(
            lambda s: s.append(TurnStart(turn=1), surface_op="append"),
            "log-only",
            id="log-only-with",
        ),
        pytest.param(
            lambda s: s.append("x/y", 1, source_event_seqs=[0]), "log-only", id="log-only-cites"
        ),
        pytest.param(
            lambda s: s.append(
                AssistantMessageEvent(turn=1, step=1, message=assistant_message(), stream=()),
                surface_op="append",
                source_event_seqs=[0],
            ),
            "cites nothing",
            id="assistant-cites",
        ),
    ],
)
def test_S34_surface_keys_stand_where_they_belong(
    refuse: Callable[[Session], object], words: str
) -> None:
    session = new_session()
    put(session, UserMessageEvent(message=user_message()))
    with pytest.raises(InvalidEventError, match=words):
        refuse(session)
    assert session.seq == 1


@pytest.mark.parametrize("cited", [None, (0,)])
def test_S43_an_assistant_message_replaces_nothing(cited: tuple[int, ...] | None) -> None:
    session = new_session()
    put(session, UserMessageEvent(message=user_message()))
    data = AssistantMessageEvent(turn=1, step=1, message=assistant_message(), stream=())
    with pytest.raises(InvalidEventError):
        session.append(data, surface_op=ReplaceOp(start_seq=0, end_seq=0), source_event_seqs=cited)
    summary = UserMessageEvent(message=user_message("sum", id="k"))
    session.append(summary, surface_op=ReplaceOp(start_seq=0, end_seq=0), source_event_seqs=(0,))
    assert [message.id for message in session.derive_messages()] == ["k"]


def test_S49_messages_pass_through_whole() -> None:
    session = new_session()
    put(session, UserMessageEvent(message=user_message(id="u1")))
    put(session, UserMessageEvent(message=user_message(id="u2")))
    value = freeze_json({"type": "hologram", "x": [1]})
    assert isinstance(value, FrozenDict)
    odd = OpaqueBlock(extra=value)
    message = assistant_message("partial", calls=("c", "d"))
    answer(session, msgspec.structs.replace(message, content=(*message.content, odd)))
    for call in ("d", "c"):
        put(session, ToolResultEvent(turn=1, step=1, message=tool_message(call)))
    answer(session, assistant_message("cut", id="b"), interrupted=True)
    derived = session.derive_messages()
    assert [found.id for found in derived] == ["u1", "u2", "a", "r-d", "r-c", "b"]
    assert [found.role for found in derived] == ["user"] * 2 + ["assistant"] + ["tool"] * 2 + [
        "assistant"
    ]
    for found, seq in zip(derived, session.surface.nodes, strict=True):
        data = session.event_at(seq).data
        assert found is message_in(data)
    assert derived[2].content[-1] == odd
    assert derived[5] == assistant_message("cut", id="b")


def message_in(data: EventData) -> Message:
    assert isinstance(data, UserMessageEvent | AssistantMessageEvent | ToolResultEvent)
    return data.message


def test_S50_order_is_surface_order_and_nothing_is_paired() -> None:
    session = new_session()
    put(session, ToolResultEvent(turn=1, step=1, message=tool_message("nobody")))
    answer(session, assistant_message(calls=("open",)))
    put(session, UserMessageEvent(message=user_message(id="u")))
    session.append(
        UserMessageEvent(message=user_message("sum", id="k")),
        surface_op=ReplaceOp(start_seq=0, end_seq=0),
        source_event_seqs=(0,),
    )
    assert [message.id for message in session.derive_messages()] == ["k", "a", "u"]


def schema(name: str) -> ToolSchema:
    return ToolSchema(name=name, description="d", parameters={})


def developer(session: Session, header_seq: int | None, *blocks: object) -> int:
    message = msgspec.structs.replace(
        system_message(id=f"d{session.seq}"),
        role="developer",
        source=tool_registry(),
        content=blocks,
    )
    data = DeveloperMessageEvent(turn=1, step=1, message=message, header_seq=header_seq)
    return session.append(data, surface_op="append").seq


def tool_registry() -> object:
    value = {"id": "x", "role": "user", "content": [], "source": {"kind": "tool-registry"}}
    row = {"type": "user/message", "seq": 0, "time": 0, "data": value, "surfaceOp": "append"}
    return message_in(event_from_json(row).data).source


def header(session: Session, *tools: str, reason: str = "initial") -> int:
    config = LlmCallConfig(provider="p", model="m")
    found = RequestHeader(config=config, tools=tuple(map(schema, tools)))
    return session.append(RequestHeaderEvent(header=found, reason=reason)).seq  # type: ignore[arg-type]  # one of four


def test_S67_a_tool_change_is_header_and_message_and_folds() -> None:
    session = new_session()
    header(session, "old")
    put(session, UserMessageEvent(message=user_message()))
    changed = header(session, "new", reason="change")
    seq = developer(
        session,
        changed,
        ToolAdditionBlock(tool_name="new"),
        ToolRemovalBlock(tool_name="old"),
    )
    history = session.tool_history()
    assert history is not None
    assert [tool.name for tool in history.tools] == ["old"]
    (update,) = history.updates
    assert [tool.name for tool in update.additions] == ["new"]
    assert session.derive_messages()[-1].id == update.message_id == f"d{seq}"
    assert [message.role for message in session.derive_messages()] == ["user", "developer"]


def test_S68_an_empty_developer_node_keeps_its_place() -> None:
    session = new_session()
    header(session, "old")
    seq = developer(session, None)
    put(session, UserMessageEvent(message=user_message()))
    assert list(session.surface.nodes) == [seq, seq + 1]
    assert [message.role for message in session.derive_messages()] == ["user"]


def test_S71_the_length_of_a_fork_prefix_is_no_part_of_the_header() -> None:
    source = new_session()
    append_turn(source, 1)
    history = list(source.events)
    replayed = Session.create(SessionId("test"), history)
    assert (replayed.header.is_seeded, replayed.inherited_event_count) == (False, 0)
    seeded = Session.create(SessionId("test"), history[:3], SEEDED, 3)
    assert (seeded.header.is_seeded, seeded.inherited_event_count) == (True, 3)
    assert "seed_length" not in SessionHeader.__struct_fields__
    with pytest.raises(InvalidLogError, match="needs a header that is seeded"):
        Session.create(SessionId("test"), history, inherited_event_count=3)


def test_S75_where_a_life_begins_depends_on_what_was_given() -> None:
    source = new_session()
    append_turn(source, 1)
    history = list(source.events)
    fresh = Session.create(SessionId("test"))
    assert (fresh.first_live_seq, fresh.first_lifecycle_seq) == (0, 0)
    replayed = Session.create(SessionId("test"), history)
    assert (replayed.first_live_seq, replayed.first_lifecycle_seq) == (len(history),) * 2
    seed = build_fork_seed(history, 4)
    fork = Session.create(SessionId("test"), seed, SEEDED, 5)
    assert (fork.first_live_seq, fork.first_lifecycle_seq) == (len(seed), 5)
    restored = Session.from_restore(SessionId("test"), fork.events, SEEDED, 5)
    assert (restored.first_live_seq, restored.first_lifecycle_seq) == (len(fork.events),) * 2


async def test_S82_a_running_turn_is_forked_where_its_caller_says() -> None:
    async with Context() as ctx:
        await ctx.plugin(SessionStore)
        session = ctx.sessions.create()
        append_turn(session, 1)
        done = session.seq - 1
        put(session, TurnStart(turn=2), StepStart(turn=2, step=1))
        answer(session, assistant_message(calls=("running",), id="b"))
        whole = ctx.sessions.fork(session)
        cut = ctx.sessions.fork(session, done)
        ends = [e.data.reason for e in whole.events if isinstance(e.data, TurnEnd)]
        assert isinstance(ends[-1], Forked)
        assert cut.events[done + 1].type == "session/end-seed"
        assert len(cut.events) == done + 2
        assert interrupted_turn_closers(session.events)


def open_call(*, started: bool) -> Session:
    session = new_session()
    put(session, TurnStart(turn=1), StepStart(turn=1, step=1))
    answer(session, assistant_message(calls=("c",)))
    if started:
        put(
            session,
            ToolCallEvent(turn=1, step=1, call_id=CallId("c"), name="echo", arguments="{}"),
        )
    return session


def closing_text(events: list[SessionEvent]) -> str:
    (result,) = [e.data for e in events if isinstance(e.data, ToolResultEvent)]
    (block,) = result.message.content
    assert isinstance(block, TextBlock)
    return block.text


def test_S87_one_text_is_format_and_the_others_are_ours() -> None:
    texts = []
    for started in (False, True):
        events = open_call(started=started).events
        texts.append(closing_text(interrupted_turn_closers(events)))
        texts.append(closing_text(build_fork_seed(events, len(events) - 1)))
    not_started, forked_not_started, unknown, forked_unknown = texts
    assert not_started == (
        "The tool call was interrupted before the Harness recorded it as started. "
        "Retry it if it is still needed."
    )
    assert len(set(texts)) == 4
    assert "idempotent" in unknown
    for text in (forked_not_started, forked_unknown):
        assert "parent" in text
    again = [closing_text(interrupted_turn_closers(open_call(started=True).events)), unknown]
    assert again[0] == again[1]


def test_S89_only_the_last_open_turn_is_closed_and_nothing_is_rewritten() -> None:
    session = new_session()
    put(session, TurnStart(turn=1), StepStart(turn=1, step=1))
    answer(session, assistant_message(calls=("lost",)))
    put(session, TurnStart(turn=2), StepStart(turn=2, step=1))
    session.append("compaction/start", {"id": "k"})
    before = list(session.events)
    closers = interrupted_turn_closers(session.events)
    assert [(e.type, getattr(e.data, "turn", None)) for e in closers] == [
        ("step/end", 2),
        ("turn/end", 2),
    ]
    assert list(session.events) == before
    assert [event.seq for event in closers] == [session.seq, session.seq + 1]


async def test_S95_disposal_is_told_once_after_removal_to_all() -> None:
    with anyio.fail_after(5):
        async with Context() as ctx:
            await ctx.plugin(SessionStore)
            told: list[tuple[str, bool]] = []

            def failing(event: SessionDisposed) -> None:
                raise RuntimeError(f"no {event.session.id}")

            ctx.on(SessionDisposed, failing)
            ctx.on(
                SessionDisposed,
                lambda event: told.append(
                    (event.session.id, ctx.sessions.get(event.session.id) is None)
                ),
            )
            silent = ctx.sessions.prepare(SessionId("silent"))
            detach_silent = ctx.sessions.enter(silent)
            loud = ctx.sessions.prepare(SessionId("loud"))
            detach_loud = ctx.sessions.enter(loud)
            ctx.sessions.announce(loud)
            await detach_silent()
            await detach_loud()
            await detach_loud()
            assert told == [("loud", True)]
            assert loud.append("x/y", 1).seq == 0


def test_S67_S47_an_addition_without_its_definition_is_refused() -> None:
    session = new_session()
    seq = header(session, "old")
    with pytest.raises(InvalidEventError, match="header"):
        developer(session, seq, ToolAdditionBlock(tool_name="new"))
    assert session.seq == 1


def test_S49_a_call_is_kept_as_the_model_wrote_it() -> None:
    session = new_session()
    call = ToolCallBlock(id=CallId("c"), name="echo", arguments='{"a": 1,, }')
    message = assistant_message()
    answer(session, msgspec.structs.replace(message, content=(call,), id=MessageId("z")))
    assert session.derive_messages()[0].content == (call,)
