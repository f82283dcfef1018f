"""Helpers for tests of what builds on sessions: short logs, the worked example, replays."""

from collections.abc import Sequence
from typing import Final

from dsh_llm import (
    CallId,
    Message,
    MessageId,
    ModelSource,
    SystemPromptSource,
    TextBlock,
    ToolCallBlock,
    ToolSource,
    UserSource,
)
from dsh_session._replay import (
    RecordedAttempt,
    ReplayMismatchError,
    ReplayModel,
    comparable_message,
    replay_model,
)
from dsh_session.events import (
    AssistantMessageEvent,
    SessionEvent,
    StepEnd,
    StepStart,
    SystemMessageEvent,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)
from dsh_session.header import SessionId
from dsh_session.reasons import Completed
from dsh_session.session import Session

WORKED_EXAMPLE: Final = (
    '{"type":"session","version":4,"id":"run/7","createdAt":1789000000000,"cwd":"/srv/demo app",'
    '"isSeeded":false,"delegationDepth":0}\n'
    '{"type":"turn/start","seq":0,"time":1789000000100,"data":{"turn":1}}\n'
    '{"type":"step/start","seq":1,"time":1789000000100,"data":{"turn":1,"step":1}}\n'
    '{"type":"system/message","seq":2,"time":1789000000100,"data":{"turn":1,"step":1,"message":'
    '{"id":"s","role":"system","content":[],"source":{"kind":"system-prompt"}}},'
    '"surfaceOp":"append"}\n'
    '{"type":"user/message","seq":3,"time":1789000000101,"data":{"id":"u","role":"user","content":'
    '[{"type":"text","text":"hi"}],"source":{"kind":"user"}},"surfaceOp":"append"}\n'
    '{"type":"request/header","seq":4,"time":1789000000101,"data":{"header":{"config":'
    '{"provider":"p","model":"m"}},"reason":"initial"}}\n'
    '{"type":"assistant/message","seq":5,"time":1789000000114,"data":{"turn":1,"step":1,"message":'
    '{"id":"a","role":"assistant","content":[{"type":"text","text":"Hello \\"wö😀"},'
    '{"type":"tool-call","id":"c1","name":"echo","arguments":"{\\"a\\":1}"}],'
    '"source":{"kind":"model","provider":"p","model":"m"}},"stream":['
    '{"type":"chunk","time":1789000000105,"chunk":{"type":"block-start","index":0,'
    '"blockType":"text"}},'
    '{"type":"text-chunks","time0":1789000000105,"index":0,"dt":[5,0,-2],'
    '"texts":["Hel","lo \\"","wö","😀"]},'
    '{"type":"tool-call-chunks","time0":1789000000110,"index":1,"dt":[1],"id":"c1","name":"echo",'
    '"args":["{\\"a\\":","1}"]},'
    '{"type":"tool-call-chunks","time0":1789000000112,"index":1,"dt":[],"id":"c1","args":[""]},'
    '{"type":"chunk","time":1789000000113,"chunk":{"type":"finish","reason":'
    '{"kind":"tool-calls"}}}]},"surfaceOp":"append"}\n'
    '{"type":"tool/call","seq":6,"time":1789000000115,"data":{"turn":1,"step":1,"callId":"c1",'
    '"name":"echo","arguments":"{\\"a\\":1}"}}\n'
    '{"type":"tool/result","seq":7,"time":1789000000116,"data":{"turn":1,"step":1,"message":'
    '{"id":"r","role":"tool","source":{"kind":"tool","callId":"c1"},"toolCallId":"c1",'
    '"content":[{"type":"text","text":"1"}],"isError":false}},"sourceEventSeqs":[6],'
    '"surfaceOp":"append"}\n'
    '{"type":"step/end","seq":8,"time":1789000000117,"data":{"turn":1,"step":1}}\n'
    '{"type":"step/start","seq":9,"time":1789000000117,"data":{"turn":1,"step":2}}\n'
    '{"type":"assistant/attempt","seq":10,"time":1789000000118,"data":{"turn":1,"step":2,"stream":['
    '{"type":"chunk","time":1789000000118,"chunk":{"type":"finish","reason":{"kind":"error",'
    '"failure":{"message":"busy","code":"SERVER"}}}}]}}\n'
    '{"type":"user/message","seq":11,"time":1789000000119,"data":{"id":"k","role":"user","content":'
    '[{"type":"text","text":"sum"}],"source":{"kind":"plugin:acme"}},"sourceEventSeqs":[3,[5,7]],'
    '"surfaceOp":{"op":"replace","startSeq":3,"endSeq":7}}\n'
    '{"type":"step/end","seq":12,"time":1789000000120,"data":{"turn":1,"step":2}}\n'
    '{"type":"turn/end","seq":13,"time":1789000000120,"data":{"turn":1,"reason":{"kind":"error",'
    '"error":{"message":"busy","code":"SERVER"}}}}\n'
).encode()
"""A stored log of one turn: header line and 14 rows, as a store without compression keeps it."""


def counting_clock(start: int = 1_789_000_000_000) -> "CountingClock":
    """A clock that is one millisecond later at each look."""
    return CountingClock(start)


class CountingClock:
    """See `counting_clock`."""

    def __init__(self, start: int) -> None:
        self.now = start

    def __call__(self) -> int:
        """The next millisecond."""
        self.now += 1
        return self.now


def system_message(text: str = "", id: str = "s") -> Message:  # noqa: A002  # the message's own key
    """A prompt with a fixed id."""
    content = (TextBlock(text=text),) if text else ()
    return Message(id=MessageId(id), role="system", content=content, source=SystemPromptSource())


def user_message(text: str = "hi", id: str = "u") -> Message:  # noqa: A002  # as above
    """A person's message with a fixed id."""
    return Message(
        id=MessageId(id), role="user", content=(TextBlock(text=text),), source=UserSource()
    )


def assistant_message(
    text: str = "hello",
    calls: Sequence[str] = (),
    id: str = "a",  # noqa: A002  # as above
) -> Message:
    """A model's answer with a fixed id, and a call of tool ``echo`` for each id in `calls`."""
    texts = (TextBlock(text=text),) if text else ()
    blocks = tuple(ToolCallBlock(id=CallId(c), name="echo", arguments="{}") for c in calls)
    source = ModelSource(provider="p", model="m")
    return Message(id=MessageId(id), role="assistant", content=(*texts, *blocks), source=source)


def tool_message(call_id: str, text: str = "1", *, is_error: bool = False) -> Message:
    """The answer to a call, with a fixed id."""
    return Message(
        id=MessageId(f"r-{call_id}"),
        role="tool",
        content=(TextBlock(text=text),),
        source=ToolSource(call_id=CallId(call_id)),
        tool_call_id=CallId(call_id),
        is_error=is_error,
    )


def append_turn(
    session: Session, turn: int, *, calls: Sequence[str] = ("c",), prompt: bool = True
) -> list[SessionEvent]:
    """Append a whole turn of one step: input, answer, the calls with their results, the end."""
    start = session.seq
    session.append(TurnStart(turn=turn))
    session.append(StepStart(turn=turn, step=1))
    if prompt and not session.surface.nodes:
        head = SystemMessageEvent(turn=turn, step=1, message=system_message("be kind"))
        session.append(head, surface_op="append")
    session.append(UserMessageEvent(message=user_message(id=f"u{turn}")), surface_op="append")
    named = [f"{call}{turn}" for call in calls]
    answer = assistant_message(calls=named, id=f"a{turn}")
    data = AssistantMessageEvent(turn=turn, step=1, message=answer, stream=())
    session.append(data, surface_op="append")
    for call in named:
        _append_call(session, turn, CallId(call))
    session.append(StepEnd(turn=turn, step=1))
    session.append(TurnEnd(turn=turn, reason=Completed()))
    return list(session.events[start:])


def _append_call(session: Session, turn: int, call: CallId) -> None:
    started = session.append(
        ToolCallEvent(turn=turn, step=1, call_id=call, name="echo", arguments="{}")
    )
    session.append(
        ToolResultEvent(turn=turn, step=1, message=tool_message(call)),
        surface_op="append",
        source_event_seqs=(started.seq,),
    )


def new_session(id: str = "test") -> Session:  # noqa: A002  # the header's own key
    """An empty session with a counting clock."""
    return Session.create(SessionId(id), now_ms=counting_clock())


__all__ = [
    "WORKED_EXAMPLE",
    "CountingClock",
    "RecordedAttempt",
    "ReplayMismatchError",
    "ReplayModel",
    "append_turn",
    "assistant_message",
    "comparable_message",
    "counting_clock",
    "new_session",
    "replay_model",
    "system_message",
    "tool_message",
    "user_message",
]
