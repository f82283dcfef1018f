"""Events that change messages already in history (S53-S55), and what they must leave alone."""

from collections.abc import Callable, Mapping
from typing import ClassVar

import msgspec
import pytest
from typing_extensions import override

from dsh_cordis import Context
from dsh_llm import Message, MessageId, TextBlock, ToolAdditionBlock
from dsh_session import (
    InvalidEventError,
    MessageProjections,
    ProjectionContext,
    ProjectionUnavailableError,
    ReplaceOp,
    Session,
    SessionEvent,
    SessionEventData,
    SessionId,
    SessionMessageProjection,
    SessionStore,
    UnsupportedEventError,
    UserMessageEvent,
    decode_stored_event,
    encode_event,
    fold_surface,
    register_session_event,
)
from dsh_session.testing import new_session, user_message

ID = SessionId("s")


@register_session_event
class Redaction(SessionEventData, frozen=True, kw_only=True):
    """Takes a word out of one message of the history."""

    type: ClassVar[str] = "test/redaction"
    projects: ClassVar[bool] = True
    target: int
    word: str


class Redact:
    """What a redaction does."""

    type = Redaction.type

    def project(self, event: SessionEvent, context: ProjectionContext) -> Mapping[int, Message]:
        data = event.data
        assert isinstance(data, Redaction)
        return {data.target: without(context.messages[data.target], data.word)}


def without(message: Message, word: str) -> Message:
    content = tuple(
        TextBlock(text=block.text.replace(word, "***")) if isinstance(block, TextBlock) else block
        for block in message.content
    )
    return msgspec.structs.replace(message, content=content)


def session_with(*definitions: SessionMessageProjection) -> Session:
    return Session.create(ID, projections=definitions)


def user(session: Session, text: str) -> int:
    data = UserMessageEvent(message=user_message(text, id=f"u{session.seq}"))
    return session.append(data, surface_op="append").seq


def texts(session: Session) -> list[str]:
    return [
        block.text
        for message in session.derive_messages()
        for block in message.content
        if isinstance(block, TextBlock)
    ]


def test_S53_S54_a_projection_changes_content_and_nothing_else() -> None:
    session = session_with(Redact())
    first, second = user(session, "my password is egg"), user(session, "egg again")
    before = session.derive_messages()
    generations = session.surface.replace_generation, session.surface.content_generation
    session.append(Redaction(target=first, word="egg"))
    after = session.derive_messages()
    assert texts(session) == ["my password is ***", "egg again"]
    assert [message.id for message in after] == [message.id for message in before]
    assert after[1] is before[1]
    assert list(session.surface.nodes) == [first, second]
    stored = session.event_at(first).data
    assert isinstance(stored, UserMessageEvent)
    assert stored.message is before[0]
    replaced, content = generations
    assert session.surface.replace_generation == replaced
    assert session.surface.content_generation == content + 1
    assert session.derive_event_message(session.event_at(first)) is after[0]
    assert texts(session) == ["my password is ***", "egg again"]


def test_S53_each_projection_sees_what_the_ones_before_it_left() -> None:
    session = session_with(Redact())
    seq = user(session, "egg and bacon")
    session.append(Redaction(target=seq, word="egg"))
    session.append(Redaction(target=seq, word="bacon"))
    assert texts(session) == ["*** and ***"]


def test_S54_a_replaced_message_takes_its_projection_with_it() -> None:
    session = session_with(Redact())
    seq = user(session, "egg")
    session.append(Redaction(target=seq, word="egg"))
    data = UserMessageEvent(message=user_message("egg, summarized", id="k"))
    op = ReplaceOp(start_seq=seq, end_seq=seq)
    session.append(data, surface_op=op, source_event_seqs=[seq])
    assert texts(session) == ["egg, summarized"]
    assert dict(session.surface.projected_messages()) == {}


def test_S53_S39_folds_and_restores_agree_with_the_live_session() -> None:
    session = session_with(Redact())
    seq = user(session, "egg")
    user(session, "other")
    session.append(Redaction(target=seq, word="egg"))
    events = [decode_stored_event(encode_event(event)) for event in session.events]
    fold = fold_surface(events, [Redact()])
    assert fold.projected_messages == dict(session.surface.projected_messages())
    restored = Session.from_restore(ID, events, session.header, projections=[Redact()])
    assert restored.derive_messages() == session.derive_messages()
    seeded = Session.create(SessionId("t"), session.events, projections=[Redact()])
    assert seeded.derive_messages() == session.derive_messages()


def test_S55_without_its_definition_the_event_is_refused_everywhere() -> None:
    session = session_with(Redact())
    seq = user(session, "egg")
    session.append(Redaction(target=seq, word="egg"))
    bare = session_with()
    user(bare, "egg")
    ways: list[Callable[[], object]] = [
        lambda: bare.append(Redaction(target=0, word="egg")),
        lambda: Session.create(SessionId("t"), session.events),
        lambda: Session.from_restore(ID, session.events, session.header),
        lambda: fold_surface(session.events),
    ]
    for way in ways:
        with pytest.raises(UnsupportedEventError, match="no message projection is registered"):
            way()
    assert bare.seq == 1
    assert bare.append("x/y", 1).seq == 1


async def test_S53_S55_a_definition_belongs_to_its_plugin() -> None:
    async with Context() as ctx:
        ctx.plugin(SessionStore)
        fiber = ctx.plugin(redacting)
        await ctx.settled()
        session, untouched = ctx.sessions.create(ID), ctx.sessions.create(SessionId("t"))
        user(untouched, "hi")
        seq = user(session, "egg")
        session.append(Redaction(target=seq, word="egg"))
        assert texts(session) == ["***"]
        await fiber.dispose()
        for derive in (
            session.derive_messages,
            lambda: session.derive_event_message(session.event_at(seq)),
        ):
            with pytest.raises(ProjectionUnavailableError, match="mount the plugin"):
                derive()
        with pytest.raises(UnsupportedEventError):
            session.append(Redaction(target=seq, word="e"))
        assert texts(untouched) == ["hi"]
        ctx.plugin(redacting)
        await ctx.settled()
        assert texts(session) == ["***"]


class Needs(Context):
    sessions: SessionStore


def redacting(ctx: Needs) -> None:
    ctx.sessions.register_message_projection(Redact())
    with pytest.raises(ValueError, match="has a message projection already"):
        ctx.sessions.register_message_projection(Redact())


def changed(message: Message, **changes: object) -> Message:
    return msgspec.structs.replace(message, **changes)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        pytest.param(
            lambda m: {0: changed(m, id=MessageId("z"))}, "more of the message", id="another id"
        ),
        pytest.param(lambda m: {0: changed(m, role="system")}, "more of the message", id="role"),
        pytest.param(lambda m: {5: m}, "which is no node", id="no node"),
        pytest.param(lambda m: {"0": m}, "which is no node", id="no seq"),
        pytest.param(lambda _: {0: "text"}, "a str", id="no message"),
        pytest.param(
            lambda m: {0: changed(m, content=(ToolAdditionBlock(tool_name="t"),))},
            "developer messages only",
            id="a block that may not stand there",
        ),
        pytest.param(
            lambda m: {0: changed(m, content=(TextBlock(text=b"x"),))},  # type: ignore[arg-type]  # that is the case
            "is none",
            id="no JSON",
        ),
    ],
)
def test_S53_S32_a_bad_projection_is_refused_and_changes_nothing(
    make: Callable[[Message], Mapping[int, Message]], match: str
) -> None:
    class Bad:
        type = Redaction.type

        def project(self, event: SessionEvent, context: ProjectionContext) -> Mapping[int, Message]:
            assert event.type == self.type
            assert context.base_seq == 0
            assert context.nodes == (0,)
            return make(context.messages[0])

    session = session_with(Bad())
    user(session, "egg")
    generation = session.surface.content_generation
    with pytest.raises(InvalidEventError, match=match):
        session.append(Redaction(target=0, word="egg"))
    assert session.seq == 1
    assert session.surface.content_generation == generation
    assert texts(session) == ["egg"]
    assert session.append("x/y", 1).seq == 1


def test_S53_what_a_projection_gives_is_frozen() -> None:
    class Listing(Redact):
        @override
        def project(self, event: SessionEvent, context: ProjectionContext) -> Mapping[int, Message]:
            found = super().project(event, context)
            return {seq: changed(m, content=list(m.content)) for seq, m in found.items()}

    session = session_with(Listing())
    session.append(Redaction(target=user(session, "egg"), word="egg"))
    assert type(session.derive_messages()[0].content) is tuple


def test_S53_a_definition_needs_a_payload_class_that_projects() -> None:
    class Other:
        type = "test/unheard-of"

        def project(self, event: SessionEvent, context: ProjectionContext) -> Mapping[int, Message]:
            raise AssertionError(event, context)

    with pytest.raises(ValueError, match="register its payload class"):
        MessageProjections([Other()])


def test_S53_S12_what_projects_is_said_by_its_payload_class() -> None:
    class Silent(SessionEventData, frozen=True, kw_only=True):
        type: ClassVar[str] = "image/offload"

    class Loud(SessionEventData, frozen=True, kw_only=True):
        type: ClassVar[str] = "user/message"
        surface: ClassVar[bool] = True
        projects: ClassVar[bool] = True

    for cls in (Silent, Loud):
        with pytest.raises(TypeError, match="change"):
            register_session_event(cls)


def test_S55_a_projecting_event_of_another_shape_is_refused() -> None:
    row = b'{"type":"test/redaction","seq":0,"time":0,"data":{"target":"first"}}'
    with pytest.raises(InvalidEventError, match="its data is none"):
        decode_stored_event(row)


def test_S62_a_projection_begins_a_series_as_a_replacement_does() -> None:
    session = session_with(Redact())
    seq = user(session, "egg")
    generation = session.surface.content_generation
    session.append(Redaction(target=seq, word="nothing of it"))
    assert session.surface.content_generation == generation + 1


def test_S52_a_plain_session_has_no_projections() -> None:
    session = new_session()
    user(session, "egg")
    assert dict(session.surface.projected_messages()) == {}
    assert session.surface.message(0) is session.derive_messages()[0]
