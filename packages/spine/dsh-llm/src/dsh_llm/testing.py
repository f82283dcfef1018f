"""Checkers for requests and streams, written apart from the code that they judge; an adapter.

`forbid_real_requests()` keeps every request of a test on this machine; as a fixture for all tests:

    @pytest.fixture(autouse=True)
    def offline():
        with forbid_real_requests():
            yield
"""

import json
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Final

from anyio.lowlevel import checkpoint

from dsh_brand import JsonValue, to_json
from dsh_llm.blocks import TextBlock, ToolCallBlock
from dsh_llm.chunks import (
    AbortedFinish,
    BlockEnd,
    BlockStart,
    ErrorFinish,
    FinishChunk,
    ReasoningDelta,
    StopFinish,
    StreamChunk,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
)
from dsh_llm.messages import Message, RequestMessage
from dsh_llm.models import LlmModelInfo, LlmProviderInfo, LlmResolvedModelInfo
from dsh_llm.outbound import real_requests_forbidden
from dsh_llm.request import GenerateOptions
from dsh_llm.retry import RetryPolicyConfig
from dsh_llm.signal import AbortSignal

_KINDS: Final = {TextDelta: "text", ReasoningDelta: "reasoning", ToolCallDelta: "tool-call"}


def forbid_real_requests() -> AbstractContextManager[None]:
    """Let no request to a model leave this machine inside the block; loopback stays open.

    It holds for the whole process and for every adapter that asks `refuse_real_request`, such as
    those over HTTP of this family. A call that would leave ends with `REAL_REQUEST_FORBIDDEN`.
    """
    return real_requests_forbidden()


def check_request(messages: Sequence[RequestMessage]) -> None:
    """Assert that a provider can be sent these messages.

    Raises:
        AssertionError: A call without exactly its answer behind it, an answer without a call, a
            repeated or empty call id, arguments that are no JSON object, an empty message, or text
            that cannot be encoded; the message lists all of it.
    """
    problems = request_problems(messages)
    if problems:
        raise AssertionError("the request is not valid:\n- " + "\n- ".join(problems))


def request_problems(messages: Sequence[RequestMessage]) -> list[str]:
    """What `check_request` would complain about; empty for a valid request."""
    problems: list[str] = []
    expected: list[str] = []
    seen: set[str] = set()
    for place, message in enumerate(messages):
        where = f"message {place} ({message.role})"
        if not message.content:
            problems.append(f"{where} has no block")
        if not _encodes(to_json(message)):
            problems.append(f"{where} holds text that cannot be encoded")
        answers = message.tool_call_id if isinstance(message, Message) else None
        if message.role == "tool":
            problems += _judge_answer(where, answers, expected)
            continue
        problems += [f"call {call_id!r} has no answer before {where}" for call_id in expected]
        expected = []
        if message.role == "assistant":
            calls = [block for block in message.content if isinstance(block, ToolCallBlock)]
            problems += _judge_calls(where, calls, seen)
            expected = [call.id for call in calls]
    return problems + [f"call {call_id!r} has no answer at the end" for call_id in expected]


def _judge_answer(where: str, answers: str | None, expected: list[str]) -> list[str]:
    if not expected:
        return [f"{where} answers {answers!r}, which no call before it waits for"]
    wanted = expected.pop(0)
    return [] if answers == wanted else [f"{where} answers {answers!r} in the place of {wanted!r}"]


def _judge_calls(where: str, calls: Iterable[ToolCallBlock], seen: set[str]) -> list[str]:
    problems: list[str] = []
    for call in calls:
        if not call.id or call.id in seen:
            problems.append(f"{where} has the empty or repeated call id {call.id!r}")
        seen.add(call.id)
        try:
            value = json.loads(call.arguments, parse_constant=_refuse)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            problems.append(f"{where}, call {call.id!r}: arguments are not a JSON object")
    return problems


def _refuse(word: str) -> None:
    raise ValueError(word)


def _encodes(value: JsonValue) -> bool:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            try:
                item.encode("utf-8")
            except UnicodeEncodeError:
                return False
        elif isinstance(item, dict):
            stack.extend(item.keys())
            stack.extend(item.values())
        elif isinstance(item, list | tuple):
            stack.extend(item)
    return True


def check_stream(chunks: Iterable[StreamChunk]) -> None:
    """Assert that a complete stream obeys the grammar that adapters promise.

    Raises:
        AssertionError: A wrong index, a delta for a block that is not open or of another type, a
            second usage, a block left open by a finish that is no failure, or a finish that is
            missing or not last.
    """
    problems = stream_problems(chunks)
    if problems:
        raise AssertionError("the stream is not valid:\n- " + "\n- ".join(problems))


def stream_problems(chunks: Iterable[StreamChunk]) -> list[str]:
    """What `check_stream` would complain about; empty for a valid stream."""
    problems: list[str] = []
    open_blocks: dict[int, str] = {}
    usages = 0
    finish: FinishChunk | None = None
    for place, chunk in enumerate(chunks):
        where = f"chunk {place} ({type(chunk).__name__})"
        if finish is not None:
            problems.append(f"{where} follows the finish")
        match chunk:
            case UsageChunk():
                usages += 1
                if usages > 1:
                    problems.append(f"{where} is a second usage")
            case FinishChunk():
                finish = chunk
                if open_blocks and not isinstance(chunk.reason, AbortedFinish | ErrorFinish):
                    problems.append(f"{where} leaves blocks {sorted(open_blocks)} open")
            case _:
                problems += _judge_block(where, chunk, open_blocks)
    return problems if finish is not None else [*problems, "the stream has no finish"]


def _judge_block(
    where: str,
    chunk: BlockStart | TextDelta | ReasoningDelta | ToolCallDelta | BlockEnd,
    open_blocks: dict[int, str],
) -> list[str]:
    index = chunk.index
    if type(index) is not int or index < 0:
        return [f"{where} has the index {index!r}"]
    if isinstance(chunk, BlockStart):
        if index in open_blocks:
            return [f"{where} opens block {index} again"]
        open_blocks[index] = chunk.block_type
        return []
    kind = chunk.block.type if isinstance(chunk, BlockEnd) else _KINDS[type(chunk)]
    if open_blocks.get(index) != kind:
        return [f"{where} belongs to a {kind} block, block {index} is {open_blocks.get(index)}"]
    if isinstance(chunk, BlockEnd):
        del open_blocks[index]
    return []


class FakeAdapter:
    """An adapter for tests of what stands above it: every call gets the same script.

    Attributes:
        script: What a call streams; an exception in it is raised at its place.
        requests: The request objects that reached it, in order.
        closed: How many streams were closed before they had ended.
        lookups: How many models were resolved.
        info: The facts about every model; `None` gives the bare ones.
        models: What the route lists.
        retry_policy: The policy of every route.
    """

    def __init__(
        self,
        script: Sequence[StreamChunk | Exception] | None = None,
        *,
        names: Mapping[str, str] | None = None,
        retry_policy: RetryPolicyConfig | None = None,
    ) -> None:
        self.script: Sequence[StreamChunk | Exception] = (
            script if script is not None else text_script("Hello.")
        )
        self.requests: list[GenerateOptions] = []
        self.closed = 0
        self.lookups = 0
        self.info: LlmResolvedModelInfo | None = None
        self.models: Sequence[LlmModelInfo] = ()
        self.retry_policy = retry_policy
        self._names = names or {}

    async def stream(self, options: GenerateOptions) -> AsyncGenerator[StreamChunk, None]:
        """Record the request and stream the script."""
        self.requests.append(options)
        try:
            for item in self.script:
                await checkpoint()
                if isinstance(item, Exception):
                    raise item
                yield item
        except GeneratorExit:
            await checkpoint()
            self.closed += 1
            raise

    async def list_models(
        self, provider: str, signal: AbortSignal | None = None
    ) -> Sequence[LlmModelInfo]:
        """The models that the test set."""
        await checkpoint()
        return self.models

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> LlmResolvedModelInfo:
        """The facts that the test set, or the bare ones."""
        await checkpoint()
        self.lookups += 1
        return self.info or LlmResolvedModelInfo(provider, model, model)

    def provider_info(self, provider: str) -> LlmProviderInfo:
        """The route under the name that the test gave it."""
        return LlmProviderInfo(provider, self._names.get(provider, provider))

    def provider_retry_policy(self, provider: str) -> RetryPolicyConfig | None:
        """The policy that the test set."""
        return self.retry_policy


def text_script(text: str) -> tuple[StreamChunk, ...]:
    """A complete stream that answers with one text."""
    return (
        BlockStart(0, "text"),
        TextDelta(0, text),
        BlockEnd(0, TextBlock(text)),
        FinishChunk(StopFinish()),
    )
