"""The surface and its replacements (S37-S46), against a model and as a property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_llm import TextBlock
from dsh_session import (
    AssistantMessageEvent,
    ReplaceOp,
    Session,
    SurfaceError,
    SurfaceManager,
    SystemMessageEvent,
    ToolErrorInfo,
    ToolResultEvent,
    UserMessageEvent,
    derive_event_message,
    fold_surface,
    is_append_surface_event,
    is_replacement_surface_event,
    is_surface_event,
)
from dsh_session.testing import (
    append_turn,
    assistant_message,
    new_session,
    system_message,
    tool_message,
    user_message,
)


def user(session: Session, text: str = "hi") -> int:
    data = UserMessageEvent(message=user_message(text, id=f"u{session.seq}"))
    return session.append(data, surface_op="append").seq


def system(session: Session, text: str = "be kind") -> int:
    data = SystemMessageEvent(turn=1, step=1, message=system_message(text))
    return session.append(data, surface_op="append").seq


def replace_by_user(session: Session, start: int, end: int, *cited: int) -> int:
    data = UserMessageEvent(message=user_message("sum", id=f"k{session.seq}"))
    op = ReplaceOp(start_seq=start, end_seq=end)
    return session.append(data, surface_op=op, source_event_seqs=cited).seq


def test_S42_endpoints_are_compared_by_position() -> None:
    session = new_session()
    a, b, c = user(session), user(session), user(session)
    k = replace_by_user(session, a, b, a, b)
    assert list(session.surface.nodes) == [k, c]
    k2 = replace_by_user(session, k, c, c, k)
    assert list(session.surface.nodes) == [k2]
    assert session.surface.replace_generation == 2


@pytest.mark.parametrize("turned", [False, True])
def test_S42_start_behind_end_and_shadowed_nodes_are_refused(turned: bool) -> None:
    session = new_session()
    a, b = user(session), user(session)
    session.append("x/y", 1)
    with pytest.raises(SurfaceError, match="behind" if turned else "not found"):
        replace_by_user(session, b if turned else 2, a if turned else 2, a, b, 2)
    k = replace_by_user(session, a, a, a)
    with pytest.raises(SurfaceError, match="not found"):
        replace_by_user(session, a, k, a, k)


def test_S45_a_replacement_cites_what_it_shadows() -> None:
    session = new_session()
    a, b = user(session), user(session)
    with pytest.raises(SurfaceError, match=r"shadows \[1\]"):
        replace_by_user(session, a, b, a)


def test_S44_the_head_gives_way_to_a_system_message_alone() -> None:
    session = new_session()
    s, u = system(session), user(session)
    with pytest.raises(SurfaceError, match="head"):
        replace_by_user(session, s, u, s, u)
    data = SystemMessageEvent(turn=1, step=1, message=system_message("new"))
    with pytest.raises(SurfaceError, match="head"):
        session.append(data, surface_op=ReplaceOp(start_seq=s, end_seq=u), source_event_seqs=(s, u))
    again = session.append(
        data, surface_op=ReplaceOp(start_seq=s, end_seq=s), source_event_seqs=(s,)
    ).seq
    assert list(session.surface.nodes) == [again, u]
    later = system(session)
    k = replace_by_user(session, u, later, u, later)
    assert list(session.surface.nodes) == [again, k]


def test_S46_a_result_rewrite_changes_content_only() -> None:
    session = new_session()
    append_turn(session, 1)
    seq = session.surface.nodes[-1]
    old = session.event_at(seq).data
    assert isinstance(old, ToolResultEvent)
    op = ReplaceOp(start_seq=seq, end_seq=seq)

    def rewrite(data: ToolResultEvent) -> int:
        return session.append(data, surface_op=op, source_event_seqs=(seq,)).seq

    shorter = tool_message("c1", "pruned")
    with pytest.raises(SurfaceError, match="keeps everything"):
        rewrite(ToolResultEvent(turn=1, step=2, message=shorter))
    with pytest.raises(SurfaceError, match="keeps everything"):
        rewrite(ToolResultEvent(turn=1, step=1, message=shorter, meta=1))
    failed = tool_message("c1", is_error=True)
    error = ToolErrorInfo(name="E", code="C")
    with pytest.raises(SurfaceError, match="keeps everything"):
        rewrite(ToolResultEvent(turn=1, step=1, message=failed, error=error))
    new = rewrite(ToolResultEvent(turn=1, step=1, message=shorter))
    assert session.surface.nodes[-1] == new
    assert session.derive_messages()[-1].content == (TextBlock(text="pruned"),)
    first = session.surface.nodes[1]
    elsewhere = ReplaceOp(start_seq=first, end_seq=first)
    data = ToolResultEvent(turn=1, step=1, message=shorter)
    with pytest.raises(SurfaceError, match="exactly one tool result"):
        session.append(data, surface_op=elsewhere, source_event_seqs=(first,))


def test_S40_guards_need_type_and_marker() -> None:
    session = new_session()
    a = user(session)
    k = replace_by_user(session, a, a, a)
    log_only = session.append("x/y", 1)
    appended, replaced = session.event_at(a), session.event_at(k)
    assert [is_surface_event(e) for e in (appended, replaced, log_only)] == [True, True, False]
    assert [is_append_surface_event(e) for e in (appended, replaced)] == [True, False]
    assert [is_replacement_surface_event(e) for e in (appended, replaced)] == [False, True]


def test_S38_the_surface_is_one_object_with_a_live_view() -> None:
    session = new_session()
    surface, nodes = session.surface, session.surface.nodes
    user(session)
    assert session.surface is surface
    assert nodes == [0]
    assert nodes[:] == (0,)
    assert len(nodes) == 1
    with pytest.raises(TypeError):
        nodes[0] = 5  # type: ignore[index]  # what is tested


def test_S39_a_windowed_manager_takes_a_slice() -> None:
    session = new_session()
    a, b = user(session), user(session)
    replace_by_user(session, b, b, b)
    replace_by_user(session, a, a, a)
    window = SurfaceManager(session.event_at, base_seq=1)
    window.apply(session.event_at(1))
    window.apply(session.event_at(2))
    assert window.nodes == [2]
    with pytest.raises(SurfaceError, match="before this window"):
        window.apply(session.event_at(3))


def test_S39_fold_tells_each_replacement() -> None:
    session = new_session()
    a, b = user(session), user(session)
    k = replace_by_user(session, a, b, b, a)
    fold = fold_surface(session.events)
    assert fold.nodes == (k,)
    (only,) = fold.replacements
    assert (only.seq, only.start, only.end, only.shadowed_seqs) == (k, a, b, (a, b))


MOVES = st.lists(
    st.tuples(st.sampled_from("usarx"), st.integers(0, 30), st.integers(0, 30)), max_size=40
)


@given(MOVES)
def test_S37_S39_S52_the_live_surface_agrees_with_a_model(
    moves: list[tuple[str, int, int]],
) -> None:
    session, model = new_session(), list[int]()
    for kind, first, second in moves:
        seq = session.seq
        if kind == "u":
            user(session)
        elif kind == "s":
            system(session, "" if first % 2 else "p")
        elif kind == "a":
            answer = assistant_message(id=f"a{seq}")
            data = AssistantMessageEvent(turn=1, step=1, message=answer, stream=())
            session.append(data, surface_op="append")
        elif kind == "x":
            session.append("x/y", first)
            continue
        else:
            low, high = sorted((first % (len(model) + 1), second % (len(model) + 1)))
            if low == high or (_has_head(session) and low == 0):
                continue
            shadowed = model[low:high]
            replace_by_user(session, shadowed[0], shadowed[-1], *sorted(shadowed))
            model[low:high] = [seq]
            assert session.derive_messages() == _derived(session, model)
            continue
        model.append(seq)
    assert list(session.surface.nodes) == model == list(fold_surface(session.events).nodes)
    assert session.derive_messages() == _derived(session, model)
    read = SurfaceManager(session.events.__getitem__)
    for event in session.events:
        read.admit(event)
    assert read.nodes == session.surface.nodes
    assert read.content_generation == session.surface.content_generation


def _has_head(session: Session) -> bool:
    nodes = session.surface.nodes
    return bool(nodes) and session.event_at(nodes[0]).type == "system/message"


def _derived(session: Session, model: list[int]) -> list[object]:
    found = [derive_event_message(session.event_at(seq)) for seq in model]
    return [message for message in found if message is not None]
