"""Calls through `ctx.llm`: one finish, one close, and the listeners around them."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

import anyio
import msgspec
import pytest
from anyio.lowlevel import checkpoint
from typing_extensions import override

from dsh_brand import freeze_object
from dsh_cordis import Context
from dsh_llm import (
    AbortController,
    AbortedFinish,
    AbortSignal,
    ErrorFinish,
    FinishChunk,
    GenerateOptions,
    LlmCallConfig,
    LlmError,
    LlmFailure,
    LlmModelReasoningInfo,
    LlmReasoningEffortInfo,
    LlmResolvedModelInfo,
    LlmService,
    LlmStreamEvent,
    ModelSource,
    OpaqueBlock,
    ReplayEnvelope,
    StreamChunk,
    TextBlock,
    TextDelta,
    create_assistant_message,
    create_user_message,
    mark_agent_loop_request,
    message_text,
)
from dsh_llm.testing import FakeAdapter, check_stream, text_script


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    async with Context() as root:
        yield root


Inner = Callable[[], AsyncIterator[StreamChunk]]


async def mounted(ctx: Context, adapter: FakeAdapter) -> LlmService:
    await ctx.plugin(LlmService)
    service = ctx.get(LlmService)
    assert service is not None
    service.register_adapter(["a"], adapter)
    return service


def options(**changes: object) -> GenerateOptions:
    base = GenerateOptions(provider="a", model="m", messages=[create_user_message("hi")])
    return msgspec.structs.replace(base, **changes)


async def drain(stream: AsyncIterator[StreamChunk]) -> list[StreamChunk]:
    with anyio.fail_after(5):
        return [chunk async for chunk in stream]


def finish_of(chunks: list[StreamChunk]) -> LlmFailure:
    last = chunks[-1]
    assert isinstance(last, FinishChunk)
    assert isinstance(last.reason, ErrorFinish | AbortedFinish)
    return last.reason.failure


async def test_L61_nothing_is_looked_up_before_the_first_chunk_is_read(ctx: Context) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, adapter)
    seen: list[GenerateOptions] = []

    def listen(event: LlmStreamEvent, next_: Inner) -> AsyncIterator[StreamChunk]:
        seen.append(event.options)
        return next_()

    ctx.on(LlmStreamEvent, listen)
    request = options()
    stream = llm.stream(request)
    assert seen == [request]
    assert adapter.lookups == 0
    chunks = await drain(stream)
    check_stream(chunks)
    assert chunks == list(adapter.script)
    assert adapter.lookups == 1


async def test_L61_a_listener_may_answer_by_itself(ctx: Context) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, adapter)
    script = text_script("mine")

    async def own() -> AsyncGenerator[StreamChunk, None]:
        for chunk in script:
            await checkpoint()
            yield chunk

    ctx.on(LlmStreamEvent, lambda event, next_: own())
    assert await drain(llm.stream(options(provider="nowhere"))) == list(script)
    assert adapter.lookups == 0


async def test_L67_a_call_that_a_listener_answered_was_not_dispatched(ctx: Context) -> None:
    llm = await mounted(ctx, FakeAdapter())

    async def own(inner: Inner, ask: bool) -> AsyncGenerator[StreamChunk, None]:
        if ask:
            async for chunk in inner():
                yield chunk
        else:
            inner()  # made, and never read
            for chunk in text_script("mine"):
                yield chunk

    ctx.on(LlmStreamEvent, lambda event, next_: own(next_, event.options.model == "ask"))
    for model, dispatched in (("ask", True), ("own", False)):
        stream = llm.stream(options(model=model))
        assert not stream.dispatched
        await drain(stream)
        assert stream.dispatched is dispatched
    unknown = llm.stream(options(provider="nowhere", model="ask"))
    await drain(unknown)
    assert unknown.dispatched


async def test_L61_a_listener_may_wrap_and_reroute_a_hand_built_request(ctx: Context) -> None:
    adapter = FakeAdapter(text_script("hi"))
    llm = await mounted(ctx, adapter)

    async def shout(inner: AsyncIterator[StreamChunk]) -> AsyncGenerator[StreamChunk, None]:
        async for chunk in inner:
            yield TextDelta(chunk.index, "HI") if isinstance(chunk, TextDelta) else chunk

    def reroute(event: LlmStreamEvent, next_: Inner) -> AsyncIterator[StreamChunk]:
        event.request.rewrite(msgspec.structs.replace(event.options, provider="a"))
        return shout(next_())

    ctx.on(LlmStreamEvent, reroute)
    chunks = await drain(llm.stream(options(provider="nowhere")))
    assert chunks[1] == TextDelta(0, "HI")
    assert adapter.requests[0].provider == "a"


async def test_L61_a_request_of_the_loop_cannot_be_rewritten(ctx: Context) -> None:
    llm = await mounted(ctx, FakeAdapter())

    def reroute(event: LlmStreamEvent, next_: Inner) -> AsyncIterator[StreamChunk]:
        event.request.rewrite(msgspec.structs.replace(event.options, provider="a"))
        return next_()

    ctx.on(LlmStreamEvent, reroute)
    request = options()
    mark_agent_loop_request(request)
    with pytest.raises(TypeError, match="agent loop"):
        llm.stream(request)


async def test_L59_a_listener_that_changes_a_prepared_request_ends_it(ctx: Context) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, adapter)

    def heat(event: LlmStreamEvent, next_: Inner) -> AsyncIterator[StreamChunk]:
        event.request.rewrite(msgspec.structs.replace(event.options, temperature=2))
        return next_()

    ctx.on(LlmStreamEvent, heat)
    prepared = await llm.prepare_call(LlmCallConfig("a", "m"))
    chunks = await drain(prepared.stream(options()))
    assert len(chunks) == 1
    assert finish_of(chunks).code == "INVALID_PREPARED_CALL"
    assert adapter.requests == []


async def test_L62_the_very_object_reaches_the_adapter_when_nothing_changes(ctx: Context) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, adapter)
    request = options()
    await drain(llm.stream(request))
    assert adapter.requests[0] is request


async def test_L62_direct_calls_get_the_defaults_too(ctx: Context) -> None:
    adapter = FakeAdapter()
    adapter.info = LlmResolvedModelInfo(
        "a",
        "m",
        "M",
        default_max_tokens=7,
        reasoning=LlmModelReasoningInfo((LlmReasoningEffortInfo("low", "Low"),), "low"),
    )
    llm = await mounted(ctx, adapter)
    await drain(llm.stream(options()))
    assert (adapter.requests[0].max_tokens, adapter.requests[0].reasoning_effort) == (7, "low")
    failed = await drain(llm.stream(options(reasoning_effort="max")))
    assert finish_of(failed).code == "UNSUPPORTED_REASONING_EFFORT"


class _Handover(FakeAdapter):
    """Loses its route while it looks a model up."""

    on_lookup: Callable[[], object] = staticmethod(lambda: None)

    @override
    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> LlmResolvedModelInfo:
        self.on_lookup()
        return await super().resolve_model(provider, model, signal)


async def test_L62_the_registration_found_first_serves_the_whole_call(ctx: Context) -> None:
    first, second = _Handover(), FakeAdapter()
    await ctx.plugin(LlmService)
    llm = ctx.get(LlmService)
    assert llm is not None
    handle = llm.register_adapter(["a"], first)

    def hand_over() -> None:
        handle()
        llm.register_adapter(["a"], second)

    first.on_lookup = hand_over
    await drain(llm.stream(options()))
    assert (len(first.requests), len(second.requests)) == (1, 0)


async def test_L63_replay_state_goes_back_only_to_the_adapter_that_made_it(ctx: Context) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, adapter)
    llm.register_adapter(["b"], adapter)
    llm.register_adapter(["c"], FakeAdapter())
    state = ReplayEnvelope({"id": 1})
    own, twin, foreign, gone = (
        create_assistant_message([TextBlock("x")], ModelSource(route, "m", state))
        for route in ("a", "b", "c", "gone")
    )
    await drain(llm.stream(options(messages=(own, twin, foreign, gone))))
    sent = adapter.requests[0].messages
    assert sent[0] is own
    assert sent[1] is twin
    for original, copy in ((foreign, sent[2]), (gone, sent[3])):
        assert isinstance(original.source, ModelSource)
        bare = msgspec.structs.replace(original.source, replay_state=None)
        assert copy == msgspec.structs.replace(original, source=bare)


async def test_L14_a_model_without_images_gets_their_names(ctx: Context) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, adapter)
    digest = "0123456789abcdef" * 4
    image = OpaqueBlock(
        extra=freeze_object({"type": "image", "attachment": {"sha256": digest, "size": 1}})
    )
    message = create_user_message([image, TextBlock("look")])
    await drain(llm.stream(options(messages=(message,))))
    assert adapter.requests[0].messages[0] is message
    adapter.info = LlmResolvedModelInfo("a", "m", "M", input_modalities=("text",))
    await drain(llm.stream(options(messages=(message,))))
    text = message_text(adapter.requests[1].messages[0])
    assert text.startswith("[image sha256:01234567:")
    assert text.endswith("]look")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        pytest.param(LlmError("busy", "RATE_LIMIT", status=429), "RATE_LIMIT", id="llm"),
        pytest.param(ValueError("odd"), "UNKNOWN", id="foreign"),
        pytest.param(ExceptionGroup("g", [LlmError("x", "SERVER")]), "SERVER", id="group"),
    ],
)
async def test_L64_an_error_of_the_adapter_is_one_finish(
    ctx: Context, error: Exception, code: str
) -> None:
    adapter = FakeAdapter([TextDelta(0, "a"), error, TextDelta(0, "never")])
    llm = await mounted(ctx, adapter)
    stream = llm.stream(options())
    chunks = await drain(stream)
    assert chunks[0] == TextDelta(0, "a")
    assert len(chunks) == 2
    finish = chunks[1]
    assert isinstance(finish, FinishChunk)
    assert isinstance(finish.reason, ErrorFinish)
    assert finish.reason.failure.code == code
    assert await drain(stream) == []
    await stream.aclose()
    assert adapter.closed == 0


async def test_L64_an_unknown_route_is_a_finish_too(ctx: Context) -> None:
    llm = await mounted(ctx, FakeAdapter())
    assert finish_of(await drain(llm.stream(options(provider="x")))).code == "NO_ADAPTER"
    assert finish_of(await drain(llm.stream(options(model="")))).code == "UNKNOWN_MODEL"


async def test_L64_the_finish_is_aborted_if_the_signal_is_or_the_code_says_so(ctx: Context) -> None:
    adapter = FakeAdapter([LlmError("stop", "ABORTED")])
    llm = await mounted(ctx, adapter)
    by_code = (await drain(llm.stream(options())))[-1]
    assert isinstance(by_code, FinishChunk)
    assert isinstance(by_code.reason, AbortedFinish)

    adapter.script = [TextDelta(0, "a"), LlmError("cut", "TRANSPORT")]
    controller = AbortController()
    stream = llm.stream(options(signal=controller.signal))
    await anext(stream)
    controller.abort("user")
    by_signal = await anext(stream)
    assert isinstance(by_signal, FinishChunk)
    assert by_signal.reason == AbortedFinish(LlmFailure("cut", "TRANSPORT"))


async def test_L93_an_aborted_signal_reaches_no_adapter(ctx: Context) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, adapter)
    controller = AbortController()
    controller.abort()
    chunks = await drain(llm.stream(options(signal=controller.signal)))
    assert finish_of(chunks).code == "ABORTED"
    assert (adapter.lookups, adapter.requests) == (0, [])


async def test_L65_errors_of_listeners_stay_raised(ctx: Context) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, adapter)

    async def break_off(inner: AsyncIterator[StreamChunk]) -> AsyncGenerator[StreamChunk, None]:
        yield await anext(inner)
        raise RuntimeError("listener")

    ctx.on(LlmStreamEvent, lambda event, next_: break_off(next_()))
    stream = llm.stream(options())
    await anext(stream)
    with pytest.raises(RuntimeError, match="listener"):
        await anext(stream)
    assert adapter.closed == 1


async def test_L65_cancellation_is_no_finish(ctx: Context) -> None:
    llm = await mounted(ctx, _Hanging())
    chunks: list[StreamChunk] = []
    with anyio.CancelScope() as scope:
        async with aclosing(llm.stream(options())) as stream, anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when_blocked, scope)
            chunks.extend([chunk async for chunk in stream])
    assert scope.cancelled_caught
    assert chunks == []


async def _cancel_when_blocked(scope: anyio.CancelScope) -> None:
    await anyio.wait_all_tasks_blocked()
    scope.cancel()


class _Hanging(FakeAdapter):
    """Streams nothing and counts how it ended."""

    @override
    async def stream(self, options: GenerateOptions) -> AsyncGenerator[StreamChunk, None]:
        self.requests.append(options)
        await anyio.sleep_forever()
        yield TextDelta(0, "never")


async def test_L66_closing_reaches_the_adapter_once(ctx: Context) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, adapter)
    stream = llm.stream(options())
    await anext(stream)
    await stream.aclose()
    await stream.aclose()
    assert adapter.closed == 1
    assert await drain(stream) == []


class _Cold:
    """A wrapping iterator that cannot be closed, and so does not pass a close on."""

    def __init__(self, inner: AsyncIterator[StreamChunk]) -> None:
        self._inner = inner

    def __aiter__(self) -> "_Cold":
        return self

    async def __anext__(self) -> StreamChunk:
        return await anext(self._inner)


async def test_L66_closing_reaches_the_adapter_past_a_listener(ctx: Context) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, adapter)
    ctx.on(LlmStreamEvent, lambda event, next_: _Cold(next_()))
    stream = llm.stream(options())
    await anext(stream)
    await stream.aclose()
    assert adapter.closed == 1


async def test_L66_closing_an_unread_stream_starts_nothing(ctx: Context) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, adapter)
    await llm.stream(options()).aclose()
    assert (adapter.lookups, adapter.closed) == (0, 0)


class _BadCleanup(FakeAdapter):
    """Fails while it is closed."""

    @override
    async def stream(self, options: GenerateOptions) -> AsyncGenerator[StreamChunk, None]:
        try:
            yield TextDelta(0, "a")
        except GeneratorExit:
            self.closed += 1
            raise RuntimeError("cleanup") from None


async def test_L66_a_failing_cleanup_is_raised_once(ctx: Context) -> None:
    adapter = _BadCleanup()
    llm = await mounted(ctx, adapter)
    stream = llm.stream(options())
    await anext(stream)
    with pytest.raises(RuntimeError, match="cleanup"):
        await stream.aclose()
    await stream.aclose()
    assert adapter.closed == 1


async def test_L66_cleanup_runs_to_its_end_when_the_reader_is_cancelled(ctx: Context) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, adapter)
    with anyio.CancelScope() as scope:
        async with aclosing(llm.stream(options())) as stream:
            await anext(stream)
            scope.cancel()
            await checkpoint()
    assert adapter.closed == 1


async def test_L66_cleanup_of_a_listener_runs_to_its_end_too(ctx: Context) -> None:
    llm = await mounted(ctx, FakeAdapter())
    cleaned: list[bool] = []

    async def tidy(inner: AsyncIterator[StreamChunk]) -> AsyncGenerator[StreamChunk, None]:
        try:
            async for chunk in inner:
                yield chunk
        finally:
            await checkpoint()
            cleaned.append(True)

    ctx.on(LlmStreamEvent, lambda event, next_: tidy(next_()))
    with anyio.CancelScope() as scope:
        async with aclosing(llm.stream(options())) as stream:
            await anext(stream)
            scope.cancel()
            await checkpoint()
    assert cleaned == [True]


async def test_K79_each_call_of_next_is_a_call_of_its_own(ctx: Context) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, adapter)

    async def twice(next_: Inner) -> AsyncGenerator[StreamChunk, None]:
        first = next_()
        await anext(first)
        async for chunk in next_():
            yield chunk

    ctx.on(LlmStreamEvent, lambda event, next_: twice(next_))
    assert await drain(llm.stream(options())) == list(adapter.script)
    assert (len(adapter.requests), adapter.closed) == (2, 1)


async def test_L45_a_stream_is_closed_from_another_task(ctx: Context) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, adapter)
    stream = llm.stream(options())
    await anext(stream)
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stream.aclose)
            tasks.start_soon(stream.aclose)
    assert adapter.closed == 1


class _Gated(FakeAdapter):
    """Waits for a gate before its first chunk."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = anyio.Event()

    @override
    async def stream(self, options: GenerateOptions) -> AsyncGenerator[StreamChunk, None]:
        await self.gate.wait()
        async with aclosing(super().stream(options)) as inner:
            async for chunk in inner:
                yield chunk


async def test_L45_closing_waits_for_a_read_that_is_under_way(ctx: Context) -> None:
    adapter = _Gated()
    llm = await mounted(ctx, adapter)
    stream = llm.stream(options())
    read: list[StreamChunk] = []
    closed: list[bool] = []

    async def reader() -> None:
        read.extend([chunk async for chunk in stream])

    async def closer() -> None:
        await stream.aclose()
        closed.append(True)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reader)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(closer)
            await anyio.wait_all_tasks_blocked()
            assert closed == []
            adapter.gate.set()
    assert (read, closed) == ([adapter.script[0]], [True])
