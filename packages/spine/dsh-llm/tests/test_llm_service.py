"""The `ctx.llm` service: routes, facts about models, prepared calls."""

from collections.abc import AsyncIterator, Callable, Sequence

import anyio
import pytest
from anyio import wait_all_tasks_blocked
from anyio.lowlevel import checkpoint
from typing_extensions import override

from dsh_cordis import Context
from dsh_llm import (
    AbortController,
    AbortSignal,
    AdapterDefaults,
    GenerateOptions,
    LlmAdaptersUpdated,
    LlmCallConfig,
    LlmConfigurableProvider,
    LlmDiscoveredModel,
    LlmError,
    LlmModelContext,
    LlmModelDiscoveryRequest,
    LlmModelInfo,
    LlmModelReasoningInfo,
    LlmProviderInfo,
    LlmReasoningEffortInfo,
    LlmResolvedModelInfo,
    LlmService,
    NormalRetryPolicy,
    StreamChunk,
    resolve_retry_policy,
)
from dsh_llm.testing import FakeAdapter


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    async with Context() as root:
        yield root


class Needs(Context):
    llm: LlmService


async def mounted(ctx: Context) -> LlmService:
    await ctx.plugin(LlmService)
    service = ctx.get(LlmService)
    assert service is not None
    return service


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(LlmError) as caught:
        call()
    return caught.value.code


def watch(ctx: Context, service: LlmService) -> list[list[str]]:
    seen: list[list[str]] = []
    ctx.on(
        LlmAdaptersUpdated,
        lambda _: seen.append([info.id for info in service.list_providers()]),
    )
    return seen


async def test_L46_all_routes_or_none(ctx: Context) -> None:
    llm = await mounted(ctx)
    seen = watch(ctx, llm)
    adapter = FakeAdapter()
    llm.register_adapter(["a", "b"], adapter)
    assert code_of(lambda: llm.register_adapter([], adapter)) == "INVALID_ADAPTER"
    assert code_of(lambda: llm.register_adapter("mine", adapter)) == "INVALID_ADAPTER"
    assert code_of(lambda: llm.register_adapter(["c", ""], adapter)) == "INVALID_ADAPTER"
    assert code_of(lambda: llm.register_adapter(["c", "c"], adapter)) == "DUPLICATE_ADAPTER"
    assert code_of(lambda: llm.register_adapter(["c", "a"], adapter)) == "DUPLICATE_ADAPTER"
    wrong = FakeAdapter(names={"c": ""})
    assert code_of(lambda: llm.register_adapter(["c"], wrong)) == "INVALID_ADAPTER"
    assert [info.id for info in llm.list_providers()] == ["a", "b"]
    assert seen == [["a", "b"]]


async def test_L47_L52_a_registration_ends_with_its_handle_or_its_plugin(ctx: Context) -> None:
    llm = await mounted(ctx)
    seen = watch(ctx, llm)
    handle = llm.register_adapter(["a"], FakeAdapter())
    handle()
    handle()

    def plugin(ctx: Needs) -> None:
        ctx.llm.register_adapter(["b"], FakeAdapter())

    async with ctx.plugin(plugin):
        assert seen[-1] == ["b"]
    assert seen == [["a"], [], ["b"], []]


async def test_L48_replace_swaps_in_one_step(ctx: Context) -> None:
    llm = await mounted(ctx)
    handle = llm.register_adapter(["a", "b"], FakeAdapter())
    llm.register_adapter(["c"], FakeAdapter())
    seen = watch(ctx, llm)
    handle.replace(["b", "d"])
    assert seen == [["c", "b", "d"]]
    assert code_of(lambda: handle.replace(["a", "c"])) == "DUPLICATE_ADAPTER"
    assert len(seen) == 1
    handle.replace([])
    assert seen[1:] == [["c"]]
    handle.replace(["e"])
    handle()
    assert code_of(lambda: handle.replace(["e"])) == "REGISTRATION_DISPOSED"
    assert [info.id for info in llm.list_providers()] == ["c"]


async def test_L49_the_policy_is_captured_at_registration(ctx: Context) -> None:
    llm = await mounted(ctx)
    adapter = FakeAdapter(retry_policy={"maxRetries": 3})
    llm.register_adapter(["a"], adapter)
    adapter.retry_policy = None
    policy = llm.provider_retry_policy("a")
    assert isinstance(policy, NormalRetryPolicy)
    assert policy.max_retries == 3
    assert llm.provider_retry_policy("a") is policy
    llm.register_adapter(["b"], adapter)
    assert llm.provider_retry_policy("b") == resolve_retry_policy()
    assert code_of(lambda: llm.provider_retry_policy("c")) == "NO_ADAPTER"


async def test_L44_lookups_get_the_signal_of_the_caller(ctx: Context) -> None:
    signals: list[AbortSignal | None] = []

    class Asking(FakeAdapter):
        @override
        async def resolve_model(
            self, provider: str, model: str, signal: AbortSignal | None = None
        ) -> LlmResolvedModelInfo:
            signals.append(signal)
            return await super().resolve_model(provider, model, signal)

        @override
        async def list_models(
            self, provider: str, signal: AbortSignal | None = None
        ) -> Sequence[LlmModelInfo]:
            signals.append(signal)
            return await super().list_models(provider, signal)

    llm = await mounted(ctx)
    llm.register_adapter(["a"], Asking())
    signal = AbortController().signal
    config = LlmCallConfig(provider="a", model="m")
    await llm.list_models("a", signal)
    await llm.resolve_model_info("a", "m", signal)
    await llm.resolve_call_config(config, signal)
    await llm.prepare_call(config, signal)
    assert len(signals) == 4
    assert all(seen is signal for seen in signals)


async def test_L50_the_list_of_routes_is_a_copy_in_the_order_of_registration(ctx: Context) -> None:
    llm = await mounted(ctx)
    llm.register_adapter(["b", "a"], FakeAdapter(names={"b": "Bee"}))
    listed = llm.list_providers()
    assert listed == [LlmProviderInfo("b", "Bee"), LlmProviderInfo("a", "a")]
    listed.clear()
    assert len(llm.list_providers()) == 2


async def test_L51_the_directory_follows_the_same_rules(ctx: Context) -> None:
    llm = await mounted(ctx)
    entry = LlmConfigurableProvider("p", "P", "ns", ("a",))
    handle = llm.register_configurable_providers([entry])
    register = llm.register_configurable_providers
    assert code_of(lambda: register([])) == "INVALID_DIRECTORY"
    assert code_of(lambda: register([entry])) == "DUPLICATE_DIRECTORY"
    bad = LlmConfigurableProvider("q", "Q", "ns", ("a", ""))
    assert code_of(lambda: register([bad])) == "INVALID_DIRECTORY"
    assert llm.list_configurable_providers() == [entry]
    handle()
    assert llm.list_configurable_providers() == []


async def test_L52_a_listener_that_raises_neither_vetoes_nor_starves(ctx: Context) -> None:
    llm = await mounted(ctx)

    def broken(event: LlmAdaptersUpdated) -> None:
        raise RuntimeError("listener")

    ctx.on(LlmAdaptersUpdated, broken)
    seen = watch(ctx, llm)
    llm.register_adapter(["a"], FakeAdapter())
    assert seen == [["a"]]


async def test_L52_an_async_listener_that_fails_later_harms_nobody(ctx: Context) -> None:
    llm = await mounted(ctx)
    failed = anyio.Event()

    async def broken(event: LlmAdaptersUpdated) -> None:
        await checkpoint()
        failed.set()
        raise RuntimeError("listener")

    ctx.on(LlmAdaptersUpdated, broken)
    seen = watch(ctx, llm)
    llm.register_adapter(["a"], FakeAdapter())
    with anyio.fail_after(5):
        await failed.wait()
        await wait_all_tasks_blocked()
    llm.register_adapter(["b"], FakeAdapter())
    assert seen == [["a"], ["a", "b"]]


async def test_L53_L54_discovery_is_offered_by_namespace(ctx: Context) -> None:
    llm = await mounted(ctx)

    async def discover(request: LlmModelDiscoveryRequest) -> Sequence[LlmDiscoveredModel]:
        ids = ("a", "", "b", "a")
        return [LlmDiscoveredModel(name, context_window=i or None) for i, name in enumerate(ids)]

    llm.register_model_discovery("ns", discover)
    register = llm.register_model_discovery
    assert code_of(lambda: register("", discover)) == "INVALID_DISCOVERY"
    assert code_of(lambda: register("ns", discover)) == "DUPLICATE_DISCOVERY"
    request = LlmModelDiscoveryRequest(provider="p")
    assert await llm.discover_models("ns", request) == [
        LlmDiscoveredModel("a"),
        LlmDiscoveredModel("b", context_window=2),
    ]
    with pytest.raises(LlmError) as caught:
        await llm.discover_models("other", request)
    assert caught.value.code == "NO_DISCOVERY"
    with pytest.raises(LlmError) as caught:
        await llm.discover_models("ns", LlmModelDiscoveryRequest(base_url=""))
    assert caught.value.code == "INVALID_DISCOVERY"


@pytest.mark.parametrize(
    "models",
    [
        pytest.param([LlmModelInfo("other", "m", "M")], id="provider"),
        pytest.param([LlmModelInfo("a", "", "M")], id="id"),
        pytest.param([LlmModelInfo("a", "m", "")], id="name"),
        pytest.param([LlmModelInfo("a", "m", "M", 1)], id="description"),  # type: ignore[arg-type]  # bad on purpose
        pytest.param([LlmModelInfo("a", "m", "M"), LlmModelInfo("a", "m", "N")], id="repeat"),
    ],
)
async def test_L55_a_wrong_list_is_refused(ctx: Context, models: list[LlmModelInfo]) -> None:
    llm = await mounted(ctx)
    adapter = FakeAdapter()
    adapter.models = [LlmModelInfo("a", "m", "M")]
    llm.register_adapter(["a"], adapter)
    assert await llm.list_models("a") == [LlmModelInfo("a", "m", "M")]
    adapter.models = models
    with pytest.raises(LlmError) as caught:
        await llm.list_models("a")
    assert caught.value.code == "INVALID_CATALOG"


def reasoning(*ids: str, default: str | None = None, name: str = "N") -> LlmModelReasoningInfo:
    return LlmModelReasoningInfo(tuple(LlmReasoningEffortInfo(i, name) for i in ids), default)


def info(**facts: object) -> LlmResolvedModelInfo:
    return LlmResolvedModelInfo(**{"provider": "a", "id": "m", "name": "M", **facts})  # type: ignore[arg-type]  # facts of a test


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        ({"provider": "b"}, "INVALID_MODEL_INFO"),
        ({"id": "n"}, "INVALID_MODEL_INFO"),
        ({"name": ""}, "INVALID_MODEL_INFO"),
        ({"system_prompt_update": "sometimes"}, "INVALID_MODEL_INFO"),
        ({"tool_update": "sometimes"}, "INVALID_MODEL_INFO"),
        ({"context": LlmModelContext(0)}, "INVALID_MODEL_CONTEXT"),
        ({"context": LlmModelContext(True)}, "INVALID_MODEL_CONTEXT"),
        ({"default_max_tokens": 0}, "INVALID_MODEL_MAX_TOKENS"),
        ({"default_max_tokens": 2**53}, "INVALID_MODEL_MAX_TOKENS"),
        ({"reasoning": reasoning()}, "INVALID_MODEL_REASONING"),
        ({"reasoning": reasoning("x", "x")}, "INVALID_MODEL_REASONING"),
        ({"reasoning": reasoning("")}, "INVALID_MODEL_REASONING"),
        ({"reasoning": reasoning("x", name="")}, "INVALID_MODEL_REASONING"),
        ({"reasoning": reasoning("x", default="y")}, "INVALID_MODEL_REASONING"),
    ],
)
async def test_L56_wrong_facts_are_refused(
    ctx: Context, facts: dict[str, object], code: str
) -> None:
    llm = await mounted(ctx)
    adapter = FakeAdapter()
    llm.register_adapter(["a"], adapter)
    adapter.info = info(**facts)
    with pytest.raises(LlmError) as caught:
        await llm.resolve_model_info("a", "m")
    assert caught.value.code == code


async def test_L57_defaults_are_filled_in_only_where_nothing_is_given(ctx: Context) -> None:
    llm = await mounted(ctx)
    adapter = FakeAdapter()
    llm.register_adapter(["a"], adapter)
    bare = LlmCallConfig("a", "m")
    assert await llm.resolve_call_config(bare) is bare
    adapter.info = info(default_max_tokens=9, reasoning=reasoning("low", "high", default="low"))
    assert await llm.resolve_call_config(bare) == LlmCallConfig(
        "a", "m", reasoning_effort="low", max_tokens=9
    )
    full = LlmCallConfig("a", "m", reasoning_effort="high", max_tokens=1)
    assert await llm.resolve_call_config(full) is full
    for effort in ("HIGH", "medium"):
        with pytest.raises(LlmError) as caught:
            await llm.resolve_call_config(LlmCallConfig("a", "m", reasoning_effort=effort))
        assert caught.value.code == "UNSUPPORTED_REASONING_EFFORT"


async def test_L58_a_prepared_call_holds_one_generation(ctx: Context) -> None:
    llm = await mounted(ctx)
    adapter = FakeAdapter()
    llm.register_adapter(["a"], adapter)
    adapter.info = info(
        default_max_tokens=9,
        context=LlmModelContext(100),
        input_modalities=("text",),
        system_prompt_update="in-history",
        tool_update="addition-only",
    )
    prepared = await llm.prepare_call(LlmCallConfig("a", "m"))
    assert adapter.lookups == 1
    assert prepared.config == LlmCallConfig("a", "m", max_tokens=9)
    assert prepared.adapter_defaults == AdapterDefaults(max_tokens=True)
    assert prepared.retry_policy is llm.provider_retry_policy("a")
    assert (prepared.context, prepared.input_modalities) == (LlmModelContext(100), ("text",))
    assert (prepared.system_prompt_update, prepared.tool_update) == ("in-history", "addition-only")
    with pytest.raises(LlmError) as caught:
        await llm.prepare_call(LlmCallConfig("nowhere", "m"))
    assert caught.value.code == "NO_ADAPTER"


async def drain(stream: AsyncIterator[StreamChunk]) -> list[StreamChunk]:
    return [chunk async for chunk in stream]


async def test_L59_a_prepared_call_is_used_once_and_for_what_it_was_prepared(ctx: Context) -> None:
    llm = await mounted(ctx)
    adapter = FakeAdapter()
    llm.register_adapter(["a"], adapter)
    prepared = await llm.prepare_call(LlmCallConfig("a", "m"))
    other = GenerateOptions(provider="a", model="m", messages=[], temperature=0.5)
    fitting = GenerateOptions(provider="a", model="m", messages=[])
    assert code_of(lambda: prepared.stream(other)) == "INVALID_PREPARED_CALL"
    assert await drain(prepared.stream(fitting)) == list(adapter.script)
    assert code_of(lambda: prepared.stream(fitting)) == "INVALID_PREPARED_CALL"


async def test_L60_the_captured_adapter_serves_after_its_route_is_gone(ctx: Context) -> None:
    llm = await mounted(ctx)
    first, second = FakeAdapter(), FakeAdapter()
    handle = llm.register_adapter(["a"], first)
    prepared = await llm.prepare_call(LlmCallConfig("a", "m"))
    handle()
    llm.register_adapter(["a"], second)
    await drain(prepared.stream(GenerateOptions(provider="a", model="m", messages=[])))
    assert (len(first.requests), len(second.requests)) == (1, 0)
