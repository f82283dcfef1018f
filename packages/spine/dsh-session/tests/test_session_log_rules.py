"""Every type that names a turn or a step is held to the open one (S128)."""

import pytest

from dsh_llm import CallId, LlmCallConfig, Message, MessageId, UserSource
from dsh_session import (
    AssistantAttempt,
    AssistantMessageEvent,
    DeveloperMessageEvent,
    EventData,
    InvalidLogError,
    LogRules,
    RawData,
    ReplaceOp,
    RequestContext,
    RequestHeader,
    RequestHeaderEvent,
    SessionEvent,
    StepEnd,
    StepStart,
    SurfaceOp,
    SystemMessageEvent,
    ToolCallEvent,
    ToolResultEvent,
    TurnStart,
    UserMessageEvent,
)
from dsh_session.testing import assistant_message, system_message, tool_message, user_message

NOTE = Message(id=MessageId("d"), role="developer", content=(), source=UserSource())
CONFIG = LlmCallConfig(provider="p", model="m")
HELD_TO_THE_STEP = [
    SystemMessageEvent(turn=1, step=1, message=system_message()),
    DeveloperMessageEvent(turn=1, step=1, message=NOTE),
    AssistantMessageEvent(turn=1, step=1, message=assistant_message(), stream=()),
    AssistantAttempt(turn=1, step=1, stream=()),
    ToolCallEvent(turn=1, step=1, call_id=CallId("c"), name="echo", arguments="{}"),
    ToolResultEvent(turn=1, step=1, message=tool_message("c")),
    StepEnd(turn=1, step=1),
]
HELD_TO_THE_TURN = [
    RequestHeaderEvent(header=RequestHeader(config=CONFIG), reason="initial"),
    RequestContext(provider="p", model="m"),
]


def push(*data: EventData, op: SurfaceOp | None = None) -> None:
    rules = LogRules()
    for seq, item in enumerate(data):
        name = "turn/start" if isinstance(item, RawData) else item.type
        surface = op if seq == len(data) - 1 else None
        rules.push(SessionEvent(type=name, seq=seq, time=0, data=item, surface_op=surface))


@pytest.mark.parametrize("data", HELD_TO_THE_STEP, ids=lambda data: data.type)
def test_S128_what_names_a_step_stands_in_it(data: EventData) -> None:
    push(TurnStart(turn=1), StepStart(turn=1, step=1), data)
    for before in ([], [TurnStart(turn=1)], [TurnStart(turn=1), StepStart(turn=1, step=2)]):
        with pytest.raises(InvalidLogError):
            push(*before, data)


@pytest.mark.parametrize("data", HELD_TO_THE_TURN, ids=lambda data: data.type)
def test_S128_headers_and_contexts_stand_in_a_turn(data: EventData) -> None:
    push(TurnStart(turn=1), data)
    with pytest.raises(InvalidLogError, match="outside a turn"):
        push(data)


def test_S128_a_result_is_rewritten_in_any_turn() -> None:
    result = ToolResultEvent(turn=1, step=1, message=tool_message("c"))
    push(TurnStart(turn=1), result, op=ReplaceOp(start_seq=0, end_seq=0))
    with pytest.raises(InvalidLogError, match="outside a turn"):
        push(result, op=ReplaceOp(start_seq=0, end_seq=0))


def test_S128_what_has_not_the_shape_of_its_numbered_type_is_refused() -> None:
    with pytest.raises(InvalidLogError, match="shape"):
        push(RawData({"turn": "one"}))


def test_S128_a_user_message_stands_anywhere() -> None:
    push(UserMessageEvent(message=user_message()))
