"""The scripted adapter (L155)."""

from collections.abc import AsyncIterator

import anyio
import pytest
from anyio import wait_all_tasks_blocked

from dsh_brand import JsonValue, thaw_json, to_json
from dsh_llm import (
    AbortController,
    AbortSignal,
    AssistantStreamAccumulator,
    BlockAssembler,
    GenerateOptions,
    LlmError,
    LlmModelContext,
    LlmResolvedModelInfo,
    ReasoningBlock,
    StreamChunk,
    TextBlock,
    ToolCallBlock,
    create_user_message,
)
from dsh_llm.testing import check_stream
from dsh_llm_scripted import (
    Call,
    Hang,
    ScriptedAdapter,
    ScriptedRoute,
    ScriptExhaustedError,
    call_chunks,
    chunk_script,
    script_from_log,
    text_chunks,
)


def options(signal: AbortSignal | None = None) -> GenerateOptions:
    return GenerateOptions(
        provider="scripted", model="m", messages=[create_user_message("hi")], signal=signal
    )


async def collect(
    adapter: ScriptedAdapter, given: GenerateOptions | None = None
) -> list[StreamChunk]:
    with anyio.fail_after(5):
        return [chunk async for chunk in adapter.stream(given or options())]


async def test_L155_one_entry_per_call_and_the_requests_are_recorded() -> None:
    first, second = text_chunks("one two"), text_chunks("b")
    adapter = ScriptedAdapter([first, lambda given: second if given.model == "m" else first])
    given = options()
    assert await collect(adapter, given) == first
    assert adapter.remaining == 1
    assert await collect(adapter) == second
    assert adapter.requests[0] is given
    with pytest.raises(ScriptExhaustedError, match="2 calls"):
        adapter.stream(options())


async def test_L155_iterators_and_errors_are_entries() -> None:
    closed = []

    async def source() -> AsyncIterator[StreamChunk]:
        try:
            for chunk in text_chunks("a"):
                yield chunk
        finally:
            closed.append(True)

    adapter = ScriptedAdapter([source(), source(), LlmError("busy", "RATE_LIMIT")])
    assert await collect(adapter) == text_chunks("a")
    stream = adapter.stream(options())
    await anext(stream)
    await stream.aclose()  # type: ignore[attr-defined]  # the protocol leaves `aclose` optional
    assert closed == [True, True]
    with pytest.raises(LlmError, match="busy"):
        await collect(adapter)


async def test_L155_a_hang_ends_with_the_abort() -> None:
    prefix = text_chunks("a")[:2]
    adapter = ScriptedAdapter([Hang(prefix)])
    controller = AbortController()

    async def abort() -> None:
        await wait_all_tasks_blocked()
        controller.abort()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(abort)
            stream = adapter.stream(options(controller.signal))
            seen = [await anext(stream) for _ in prefix]
            with pytest.raises(LlmError) as caught:
                await anext(stream)
    assert caught.value.code == "ABORTED"
    assert seen == prefix


async def test_a_hang_without_a_signal_can_be_closed_from_another_task() -> None:
    stream = ScriptedAdapter([Hang()]).stream(options())

    async def close() -> None:
        await wait_all_tasks_blocked()
        await stream.aclose()  # type: ignore[attr-defined]  # the protocol leaves it optional

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close)
            with pytest.raises(LlmError):
                await anext(stream)


async def test_L155_facts_are_settable_per_route() -> None:
    listed = LlmResolvedModelInfo("a", "big", "Big", system_prompt_update="in-history")
    others = LlmResolvedModelInfo("", "", "", context=LlmModelContext(100))
    adapter = ScriptedAdapter(
        [],
        routes={
            "a": ScriptedRoute(name="A", models=[listed], other_models=others),
            "b": ScriptedRoute(retry_policy={"maxRetries": 1}),
        },
    )
    assert adapter.providers == ["a", "b"]
    assert adapter.provider_info("a").name == "A"
    assert [model.id for model in await adapter.list_models("a")] == ["big"]
    assert await adapter.resolve_model("a", "big") == listed
    assert (await adapter.resolve_model("a", "x")).context == LlmModelContext(100)
    assert await adapter.resolve_model("b", "x") == LlmResolvedModelInfo("b", "x", "x")
    assert adapter.provider_retry_policy("b") == {"maxRetries": 1}
    with pytest.raises(LlmError):
        adapter.provider_info("c")


def test_chunk_builders_make_well_formed_answers() -> None:
    call = Call("f", {"a": "ü"}, id="c9")
    chunks = call_chunks(call, Call("g"), text="Now.", reasoning="Think first.")
    check_stream(chunks)
    check_stream(text_chunks("", usage=None))
    assembler = BlockAssembler()
    for chunk in chunks:
        assembler.push(chunk)
    assert assembler.blocks() == (
        ReasoningBlock("Think first."),
        TextBlock("Now."),
        ToolCallBlock("c9", "f", '{"a":"ü"}'),  # type: ignore[arg-type]  # a plain id reads better
        ToolCallBlock("call_2", "g", "{}"),  # type: ignore[arg-type]  # as above
    )


def test_chunk_scripts_can_be_written_as_json() -> None:
    entries = [
        {"kind": "text", "text": "Hi", "finish": "length"},
        {"kind": "tool-calls", "calls": [{"name": "f"}]},
    ]
    script = chunk_script(entries)
    assert script[1] == call_chunks(Call("f"))
    with pytest.raises(ValueError, match="not a script of chunks"):
        chunk_script([{"kind": "raw", "parts": []}])


def test_L155_a_script_can_be_derived_from_a_log() -> None:
    answers = [text_chunks("one two"), call_chunks(Call("f"))]
    events: list[dict[str, JsonValue]] = []
    for seq, (kind, answer) in enumerate(
        zip(("assistant/attempt", "assistant/message"), answers, strict=True)
    ):
        accumulator = AssistantStreamAccumulator()
        for time, chunk in enumerate(answer):
            accumulator.push(time, chunk)
        stream = thaw_json(to_json(accumulator.snapshot()))
        events.append({"type": kind, "seq": seq, "data": {"stream": stream}})
    assert script_from_log([{"type": "turn/start", "seq": 9, "data": {}}, *events]) == answers


@pytest.mark.parametrize("stream", [None, [1], [{"type": "text-chunks"}]])
def test_a_broken_attempt_is_named(stream: object) -> None:
    event = {"type": "assistant/message", "seq": 4, "data": {"stream": stream}}
    with pytest.raises(ValueError, match="event 4"):
        script_from_log([event])  # type: ignore[list-item]  # what a broken log holds
