"""A long conversation for benchmarks of stores: its texts, and the events an agent logs of it."""

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from dsh_llm import (
    AssistantStreamAccumulator,
    BlockEnd,
    BlockStart,
    CallId,
    FinishChunk,
    LlmCallConfig,
    ModelSource,
    StopFinish,
    StreamChunk,
    StreamRecord,
    TextBlock,
    TextDelta,
    TokenUsage,
    ToolCallBlock,
    ToolCallDelta,
    ToolCallsFinish,
    UsageChunk,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
)
from dsh_session import (
    AssistantMessageEvent,
    Completed,
    RequestHeader,
    RequestHeaderEvent,
    Session,
    SessionEventData,
    SessionHeader,
    SessionId,
    StepEnd,
    StepStart,
    ToolCallEvent,
    ToolResultEvent,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
)

ID: Final = SessionId("bench")
HEADER: Final = SessionHeader(id=ID, created_at=0, cwd="/srv/bench", delegation_depth=0)
MODEL: Final = ModelSource(provider="deepseek", model="deepseek-chat")
USAGE: Final = TokenUsage(input_tokens=1200, output_tokens=40)
WORDS: Final = (
    *("the", "tests", "pass", "now", "and", "change", "is", "small", "enough", "to", "read", "in"),
    *("one", "go", "file", "function", "returns", "value", "when", "caller", "asks", "for", "more"),
    *("than", "limit", "error", "names", "path", "which", "was", "given", "so", "that", "next"),
    *("step", "can", "be", "taken", "without", "looking", "through", "log", "again", "because"),
)
TOOL: Final = "read"


class Turn(NamedTuple):
    """The texts of one turn."""

    number: int
    asked: str
    arguments: str
    result: str
    answer: str

    @property
    def call_id(self) -> str:
        """The id of its one tool call."""
        return f"call-{self.number}"


def turn_of(number: int) -> Turn:
    """A question, a tool call with its result, and an answer of 40 words; always the same texts."""
    source = random.Random(number)

    def words(count: int) -> str:
        return " ".join(source.choices(WORDS, k=count))

    return Turn(
        number,
        f"Look at file number {number}: {words(8)}?",
        f'{{"path": "src/part_{number}.py"}}',
        "\n".join(f"def part_{line}() -> None:  # {words(4)}" for line in range(6)),
        f"Turn {number}: {words(38)}.",
    )


def stream_of(chunks: Sequence[StreamChunk]) -> tuple[StreamRecord, ...]:
    """A stream whose chunks come every ten milliseconds."""
    stream = AssistantStreamAccumulator()
    for index, chunk in enumerate(chunks):
        stream.push(index * 10, chunk)
    return stream.snapshot()


def payloads(turn: Turn) -> Iterator[SessionEventData]:
    """What an agent logs of a turn of two steps, the streams of both answers included."""
    number = turn.number
    call = ToolCallBlock(id=CallId(turn.call_id), name=TOOL, arguments=turn.arguments)
    said = TextBlock(turn.answer)
    delta = ToolCallDelta(index=0, id=call.id, name=TOOL, arguments_delta=turn.arguments)
    end = (UsageChunk(USAGE), FinishChunk(ToolCallsFinish()))
    asked = stream_of([BlockStart(0, "tool-call"), delta, BlockEnd(0, call), *end])
    first, *others = turn.answer.split(" ")
    deltas = [TextDelta(0, first), *(TextDelta(0, f" {word}") for word in others)]
    end = (UsageChunk(USAGE), FinishChunk(StopFinish()))
    answered = stream_of([BlockStart(0, "text"), *deltas, BlockEnd(0, said), *end])
    yield TurnStart(turn=number)
    yield StepStart(turn=number, step=1)
    yield UserMessageEvent(message=create_user_message(turn.asked))
    if number == 1:
        config = LlmCallConfig(provider=MODEL.provider, model=MODEL.model)
        yield RequestHeaderEvent(header=RequestHeader(config=config), reason="initial")
    message = create_assistant_message([call], MODEL)
    yield AssistantMessageEvent(turn=number, step=1, message=message, stream=asked, usage=USAGE)
    yield ToolCallEvent(turn=number, step=1, call_id=call.id, name=TOOL, arguments=turn.arguments)
    result = create_tool_result_message(call.id, [TextBlock(turn.result)], False)
    yield ToolResultEvent(turn=number, step=1, message=result)
    yield StepEnd(turn=number, step=1)
    yield StepStart(turn=number, step=2)
    message = create_assistant_message([said], MODEL)
    yield AssistantMessageEvent(turn=number, step=2, message=message, stream=answered, usage=USAGE)
    yield StepEnd(turn=number, step=2)
    yield TurnEnd(turn=number, reason=Completed())


def append_all(session: Session, data: Iterable[SessionEventData]) -> None:
    """Append payloads, those of the surface to its end."""
    for item in data:
        session.append(item, surface_op="append" if item.surface else None)
