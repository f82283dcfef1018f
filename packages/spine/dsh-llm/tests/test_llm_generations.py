"""One call: one attempt, served by one configuration, whatever changes in between."""

from collections.abc import AsyncIterator
from typing import ClassVar

import anyio
import msgspec
import pytest
from typing_extensions import override

from dsh_brand import freeze_object
from dsh_cordis import Context
from dsh_llm import (
    AbortSignal,
    AdapterDefaults,
    BlockEnd,
    ErrorFinish,
    FinishChunk,
    GenerateOptions,
    LlmAdapter,
    LlmCallConfig,
    LlmError,
    LlmFailure,
    LlmModelReasoningInfo,
    LlmReasoningEffortInfo,
    LlmResolvedModelInfo,
    LlmService,
    Message,
    ModelSource,
    OpaqueBlock,
    ReplayEnvelope,
    StreamChunk,
    TextBlock,
    ToolAdditionBlock,
    ToolHistory,
    ToolRegistrySource,
    ToolSchema,
    ToolUpdate,
    create_assistant_message,
    create_developer_message,
    create_user_message,
    message_text,
)
from dsh_llm.testing import FakeAdapter, text_script


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    async with Context() as root:
        yield root


async def mounted(ctx: Context, **routes: LlmAdapter) -> LlmService:
    await ctx.plugin(LlmService)
    service = ctx.get(LlmService)
    assert service is not None
    for name, adapter in routes.items():
        service.register_adapter([name], adapter)
    return service


def options(**changes: object) -> GenerateOptions:
    base = GenerateOptions(provider="a", model="m", messages=[create_user_message("hi")])
    return msgspec.structs.replace(base, **changes)


async def drain(stream: AsyncIterator[StreamChunk]) -> list[StreamChunk]:
    with anyio.fail_after(5):
        return [chunk async for chunk in stream]


def failure(chunks: list[StreamChunk]) -> LlmFailure:
    [finish] = chunks
    assert isinstance(finish, FinishChunk)
    assert isinstance(finish.reason, ErrorFinish)
    return finish.reason.failure


def info(**facts: object) -> LlmResolvedModelInfo:
    return LlmResolvedModelInfo(**{"provider": "a", "id": "m", "name": "M", **facts})  # type: ignore[arg-type]  # facts of a test


@pytest.mark.parametrize("code", ["RATE_LIMIT", "SERVER", "TRANSPORT", "TIMEOUT"])
async def test_L36_a_failed_call_asks_the_adapter_once(ctx: Context, code: str) -> None:
    adapter = FakeAdapter([LlmError("busy", code)])
    llm = await mounted(ctx, a=adapter)
    assert failure(await drain(llm.stream(options()))).code == code
    prepared = await llm.prepare_call(LlmCallConfig("a", "m"))
    assert failure(await drain(prepared.stream(options()))).code == code
    assert len(adapter.requests) == 2


@pytest.mark.parametrize(
    "text", ["aborted", "prompt is too long", "insufficient quota", "rate limit reached, ABORTED"]
)
async def test_L31_the_text_of_a_failure_changes_nothing(ctx: Context, text: str) -> None:
    llm = await mounted(ctx, a=FakeAdapter([LlmError(text, "SERVER")]))
    assert failure(await drain(llm.stream(options()))) == LlmFailure(text, "SERVER")


class _Settings(FakeAdapter):
    """Its answers and facts come from settings that change in place while it is registered."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.configure(name)

    def configure(self, name: str) -> None:
        self.script = text_script(name)
        self.info = info(name=name)

    def current_generation(self) -> LlmAdapter:
        fixed = FakeAdapter(self.script)
        fixed.info = self.info
        fixed.requests = self.requests
        return fixed


def said(chunks: list[StreamChunk]) -> str:
    ended = (chunk.block for chunk in chunks if isinstance(chunk, BlockEnd))
    return "".join(block.text for block in ended if isinstance(block, TextBlock))


async def test_L42_a_prepared_call_keeps_the_configuration_it_was_prepared_with(
    ctx: Context,
) -> None:
    adapter = _Settings("old")
    llm = await mounted(ctx, a=adapter)
    prepared = await llm.prepare_call(LlmCallConfig("a", "m"))
    adapter.configure("new")
    assert said(await drain(prepared.stream(options()))) == "old"
    assert said(await drain(llm.stream(options()))) == "new"
    assert (await llm.resolve_model_info("a", "m")).name == "new"


async def test_L42_a_direct_call_keeps_the_configuration_it_began_with(ctx: Context) -> None:
    looked_up, changed = anyio.Event(), anyio.Event()

    class Slow(FakeAdapter):
        @override
        async def resolve_model(
            self, provider: str, model: str, signal: AbortSignal | None = None
        ) -> LlmResolvedModelInfo:
            looked_up.set()
            await changed.wait()
            return await super().resolve_model(provider, model, signal)

    class Changing(FakeAdapter):
        current: ClassVar[str] = "old"

        def current_generation(self) -> LlmAdapter:
            return Slow(text_script(self.current))

    llm = await mounted(ctx, a=Changing())
    found: list[str] = []

    async def call() -> None:
        found.append(said(await drain(llm.stream(options()))))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await looked_up.wait()
            Changing.current = "new"
            changed.set()
    assert found == ["old"]


async def test_L42_L63_a_generation_gets_the_replay_state_of_its_adapter(ctx: Context) -> None:
    adapter = _Settings("old")
    llm = await mounted(ctx, a=adapter, b=FakeAdapter())
    own, foreign = (
        create_assistant_message(
            [TextBlock("x")], ModelSource(route, "m", replay_state=ReplayEnvelope({"id": 1}))
        )
        for route in ("a", "b")
    )
    await drain(llm.stream(options(messages=[own, foreign])))
    [sent] = adapter.requests
    assert sent.messages[0] is own
    assert sent.messages[1] == msgspec.structs.replace(foreign, source=ModelSource("b", "m"))


SCHEMA = ToolSchema("b", "", {})
CHANGE = create_developer_message([ToolAdditionBlock("b")], ToolRegistrySource())
UPDATED = ToolHistory((), (ToolUpdate(CHANGE.id, (SCHEMA,)),))


@pytest.mark.parametrize("mode", [None, "addition-only", "in-history"])
async def test_L173_the_update_modes_of_the_prepared_call_are_those_applied(
    ctx: Context, mode: str | None
) -> None:
    adapter = FakeAdapter()
    llm = await mounted(ctx, a=adapter)
    adapter.info = info(tool_update=mode, system_prompt_update="in-history")
    prepared = await llm.prepare_call(LlmCallConfig("a", "m"))
    adapter.info = info(tool_update=None if mode else "in-history")
    request = options(messages=[CHANGE], tools=(SCHEMA,), tool_history=UPDATED)
    await drain(prepared.stream(request))
    assert adapter.lookups == 1
    assert (prepared.tool_update, prepared.system_prompt_update) == (mode, "in-history")
    [sent] = adapter.requests
    assert list(sent.messages) == ([CHANGE] if mode else [])


def efforts(*ids: str) -> LlmModelReasoningInfo:
    return LlmModelReasoningInfo(tuple(LlmReasoningEffortInfo(i, i) for i in ids), ids[0])


async def test_L168_a_default_is_taken_anew_from_each_route_and_a_choice_stays(
    ctx: Context,
) -> None:
    first, second = FakeAdapter(), FakeAdapter()
    llm = await mounted(ctx, a=first, b=second)
    first.info = info(default_max_tokens=9, reasoning=efforts("low", "high"))
    second.info = info(provider="b", default_max_tokens=5, reasoning=efforts("high", "low"))
    filled = await llm.prepare_call(LlmCallConfig("a", "m"))
    assert filled.config == LlmCallConfig("a", "m", reasoning_effort="low", max_tokens=9)
    assert filled.adapter_defaults == AdapterDefaults(reasoning_effort=True, max_tokens=True)
    elsewhere = await llm.prepare_call(LlmCallConfig("b", "m"))
    assert elsewhere.config == LlmCallConfig("b", "m", reasoning_effort="high", max_tokens=5)
    choices: list[tuple[str | None, int | None]] = [("low", None), (None, 1), ("low", 1)]
    for effort, limit in choices:
        asked = LlmCallConfig("b", "m", reasoning_effort=effort, max_tokens=limit)
        chosen = await llm.prepare_call(asked)
        assert chosen.config == LlmCallConfig(
            "b", "m", reasoning_effort=effort or "high", max_tokens=limit or 5
        )
        marks = AdapterDefaults(
            reasoning_effort=effort is None or None, max_tokens=limit is None or None
        )
        assert (chosen.adapter_defaults or AdapterDefaults()) == marks


@pytest.mark.parametrize("modalities", [None, ("text", "image"), ("text",)])
async def test_L166_an_image_taken_out_is_text_on_every_route(
    ctx: Context, modalities: tuple[str, ...] | None
) -> None:
    facts = {"type": "image", "attachment": {"sha256": "ab" * 32}, "offloaded": True}
    message = create_user_message([OpaqueBlock(extra=freeze_object(facts)), TextBlock(" look")])
    adapter = FakeAdapter()
    adapter.info = info(input_modalities=modalities)
    llm = await mounted(ctx, a=adapter)
    await drain(llm.stream(options(messages=[message])))
    [sent] = adapter.requests[0].messages
    assert isinstance(sent, Message)
    assert [block.type for block in sent.content] == ["text", "text"]
    assert message_text(sent) == (
        "[image sha256:abababab: taken out to make room, and not sent again] look"
    )
    assert sent.id == message.id


async def test_L166_how_many_images_must_go_reaches_the_caller(ctx: Context) -> None:
    error = LlmError("too many images", "IMAGE_OFFLOAD_REQUIRED", offload_images=2)
    llm = await mounted(ctx, a=FakeAdapter([error]))
    assert failure(await drain(llm.stream(options()))).offload_images == 2
