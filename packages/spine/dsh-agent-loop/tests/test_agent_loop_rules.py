"""Rules of the driver and of interception, one by one."""

from collections.abc import AsyncIterator, Callable

import anyio
import anyio.lowlevel
import msgspec
import pytest
from typing_extensions import override

from dsh_agent import (
    Agent,
    AgentAssistantStream,
    AgentCreated,
    AgentCreationError,
    AgentError,
    AgentRegistry,
    AgentRequest,
    AgentRequestError,
    AgentSelfWaitError,
    AgentStatusChanged,
    AssistantFrame,
    Enter,
    InboxInserted,
    ModelSelection,
    PreStep,
    PreStepDecision,
    Retry,
    Setup,
    StreamChunkFrame,
    StreamEnd,
    StreamStart,
    TurnStopping,
)
from dsh_agent_loop.testing import (
    LoopStack,
    Recorder,
    ScriptedModel,
    Step,
    call,
    cut,
    fail,
    line_of,
    loop_stack,
    mount_loop,
    say,
)
from dsh_cordis import Context, Next
from dsh_llm import (
    CallId,
    ErrorFinish,
    FinishChunk,
    GenerateOptions,
    LlmCallConfig,
    LlmFailure,
    LlmResolvedModelInfo,
    LlmStreamEvent,
    Message,
    MessageId,
    ModelSource,
    RetryPolicy,
    StreamChunk,
    TextBlock,
    ToolCallBlock,
    create_assistant_message,
    create_tool_result_message,
    create_user_message,
    message_text,
    request_messages,
    resolve_retry_policy,
)
from dsh_session import (
    ErrorEnd,
    ReplaceOp,
    SessionFlush,
    TurnEnd,
    UserMessageEvent,
)
from dsh_session_persistence.testing.memory import MemoryLogStore, MemoryPersistence
from dsh_system_prompt import UNLISTED, PromptAssembly, SystemPromptAssemble
from dsh_tools import ToolRunContext


class Owner(Context):
    """A plugin that makes agents."""

    agents: AgentRegistry


def own(ctx: Owner, owners: list[Owner]) -> None:
    owners.append(ctx)


def turns_of(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("turn/")]


async def fine(run: ToolRunContext) -> str:
    return "ok"


def last_end(stack: LoopStack) -> object:
    return [e.data.reason for e in stack.agent.session.events if isinstance(e.data, TurnEnd)][-1]


# ---- the handle ------------------------------------------------------------------------------


async def test_A1_what_an_agent_is_made_of() -> None:
    async with loop_stack() as stack:
        agent = stack.agent
        assert agent.id == agent.session.id
        assert agent.options.provider == "test"
        assert (agent.inbox.next_turn, agent.inbox.next_step) == ((), ())
        assert (agent.status, agent.ctx.agents.get(agent.id)) == ("idle", agent)
        for name in (
            *("send", "followup", "steer", "inject"),
            *("cancel", "when_idle", "run_maintenance"),
        ):
            assert callable(getattr(agent, name))
        assert stack.ctx.get("agent") is None  # a context does not lead back to an agent
        assert agent.ctx.get("agent") is None


async def test_A6_a_prologue_that_fails_is_not_raised_to_the_sender() -> None:
    async with loop_stack(say("hi")) as stack:
        with stack.refusing("turn/start"):
            stack.agent.followup("M")
            assert stack.agent.status == "running"  # the way back never happens inside the call
            with anyio.fail_after(5):
                await stack.agent.when_idle()
        assert "~agent/error 0.0" in stack.recorder.take()


async def test_A15_running_covers_the_whole_drain_and_disposal_is_no_status() -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        seen: list[str] = []
        stack.ctx.on(AgentStatusChanged, lambda e: seen.append(e.status), everywhere=True)
        stack.agent.followup("M")
        stack.agent.followup("N")
        assert stack.agent.status == "running"
        with anyio.fail_after(5):
            await stack.agent.when_idle()
        await stack.handle.dispose()
        assert (seen, stack.agent.status) == (["running", "idle"], "idle")


# ---- events ----------------------------------------------------------------------------------


async def test_A43_the_driver_waits_for_no_emit_listener_and_idle_waits_for_all() -> None:
    async with loop_stack(say("hi")) as stack:
        release, heard = anyio.Event(), list[str]()

        async def slow(event: InboxInserted) -> None:
            await release.wait()
            heard.append("slow")

        async def failing(event: InboxInserted) -> None:
            raise RuntimeError("this listener is broken")

        def raising(event: InboxInserted) -> None:
            raise RuntimeError("and so is this")

        for listener in (slow, failing, raising, lambda e: heard.append("last")):
            stack.ctx.on(InboxInserted, listener, everywhere=True)
        idle = anyio.Event()

        async def wait() -> None:
            await stack.agent.when_idle()
            idle.set()

        async with anyio.create_task_group() as tasks:
            stack.agent.followup("M")
            tasks.start_soon(wait)
            with anyio.fail_after(5):
                while "~status idle" not in stack.recorder.lines:
                    await anyio.lowlevel.checkpoint()
            assert (heard, idle.is_set()) == (["last"], False)
            release.set()
            with anyio.fail_after(5):
                await idle.wait()
        assert heard == ["last", "slow"]


async def test_A44_failures_of_serial_and_waterfall_listeners_end_the_turn() -> None:
    async with loop_stack(say("a"), say("b"), say("c")) as stack:
        errors: list[str] = []
        stack.ctx.on(AgentError, lambda e: errors.append(str(e.error)), everywhere=True)

        async def stopping(event: TurnStopping) -> None:
            raise RuntimeError("stopping broke")

        async def pre_step(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            raise RuntimeError("pre-step broke")

        handle = stack.ctx.on(TurnStopping, stopping, everywhere=True)
        assert turns_of(await stack.run("M"))[-1] == "turn/end 1 error"
        handle()
        stack.ctx.on(PreStep, pre_step, everywhere=True)
        assert turns_of(await stack.run("N"))[-1] == "turn/end 2 error"
        assert errors == ["stopping broke", "pre-step broke"]


async def test_A45_frames_are_dense_numbered_and_closed() -> None:
    async with loop_stack(fail(), say("hi")) as stack:
        frames: list[AssistantFrame] = []
        stack.ctx.on(AgentAssistantStream, lambda e: frames.append(e.frame), everywhere=True)

        async def again(event: AgentRequestError, next_: Next[Retry | None]) -> Retry:
            return Retry()

        stack.ctx.on(AgentRequestError, again, everywhere=True)
        await stack.run("M")
        agent = stack.agent
        assert [frame.revision for frame in frames] == list(range(1, len(frames) + 1))
        attempts = [[f for f in frames if f.attempt_id == f"{agent.id}:{n}"] for n in (1, 2)]
        assert sum(map(len, attempts)) == len(frames)
        for attempt, chunks in zip(attempts, (1, 4), strict=True):
            assert isinstance(attempt[0], StreamStart)
            assert (attempt[0].turn, attempt[0].step) == (1, 1)
            middle = [f for f in attempt if isinstance(f, StreamChunkFrame)]
            assert [f.index for f in middle] == list(range(chunks))
            assert isinstance(attempt[-1], StreamEnd)
            assert attempt[-1].index == chunks == len(attempt) - 2


async def test_A47_an_error_is_told_before_its_end_and_never_for_a_cancellation() -> None:
    async with loop_stack(fail(), say("never")) as stack:
        lines = await stack.run("M")
        assert lines.index("~agent/error 1.1") < lines.index("turn/end 1 error")

        async def hang(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            stack.agent.cancel()
            await anyio.sleep_forever()
            return await next_()

        stack.ctx.on(PreStep, hang, everywhere=True)
        lines = await stack.run("N")
        assert "turn/end 2 aborted" in lines
        assert not [line for line in lines if line.startswith("~agent/error")]


async def test_A47_a_seeded_agent_starts_up_and_a_stored_one_resumes() -> None:
    logs = MemoryLogStore()
    async with loop_stack(
        say("hi"), before=lambda ctx: ctx.plugin(MemoryPersistence, logs)
    ) as stack:
        sources: list[str] = []

        async def created(event: AgentCreated) -> None:
            sources.append(event.source)

        stack.ctx.on(AgentCreated, created, everywhere=True)
        await stack.run("M")
        events = list(stack.agent.session.events)
        await stack.handle.dispose()
        await stack.ctx.agents.resume(stack.agent.id)
        await stack.ctx.agents.create(seed=events)
        assert sources == ["resume", "startup"]


# ---- creation --------------------------------------------------------------------------------


async def test_A60_set_up_composes_what_the_announcement_already_finds() -> None:
    async with loop_stack(say("hi")) as stack:
        seen: list[object] = []

        async def setup(ctx: Context, agent: Agent) -> None:
            await anyio.lowlevel.checkpoint()
            seen.append((ctx is agent.ctx, stack.ctx.agents.get(agent.id)))
            seen.append(stack.ctx.sessions.get(agent.id) is agent.session)
            ctx.system_prompt.section("own", 1, "You are set up.")

        async def created(event: AgentCreated) -> None:
            assembly = await stack.ctx.system_prompt.assemble(event.agent)
            seen.append([section.text for section in assembly.sections if section.text])

        stack.ctx.on(AgentCreated, created, everywhere=True)
        await stack.ctx.agents.create(setup=setup)
        assert seen == [(True, None), True, ["You are set up."]]


async def test_A61_what_set_up_logs_is_stored_and_nothing_leaves_no_trace() -> None:
    logs = MemoryLogStore()
    async with loop_stack(before=lambda ctx: ctx.plugin(MemoryPersistence, logs)) as stack:
        stored: dict[str, Agent] = {}

        def failing(name: str, *, writes: bool) -> Setup:
            def setup(ctx: Context, agent: Agent) -> None:
                stored[name] = agent
                if writes:
                    agent.inject("noted")
                raise RuntimeError("no")

            return setup

        for name, writes in (("silent", False), ("busy", True)):
            with pytest.raises(RuntimeError, match="no"):
                await stack.ctx.agents.create(setup=failing(name, writes=writes))
        assert stored["silent"].id not in logs.records
        handle = await stack.ctx.agents.resume(stored["busy"].id)
        assert [message_text(m) for m in handle.agent.inbox.next_step] == ["noted"]


async def test_A65_a_creation_listener_may_dispose_but_not_wait() -> None:
    async with loop_stack() as stack:
        seen: list[object] = []
        owners: list[Owner] = []
        owner = stack.ctx.plugin(own, owners)
        await owner

        async def waits(event: AgentCreated) -> None:
            with pytest.raises(AgentSelfWaitError):
                await event.agent.when_idle()

        async def disposes(event: AgentCreated) -> None:
            seen.append(owner() is not None)  # begun; its end comes after this announcement
            await anyio.lowlevel.checkpoint()

        async def later(event: AgentCreated) -> None:
            agent = event.agent
            seen.append(stack.ctx.agents.get(agent.id) is agent)
            seen.append(stack.ctx.sessions.get(agent.id) is agent.session)

        for listener in (waits, disposes, later):
            stack.ctx.on(AgentCreated, listener, everywhere=True)
        with anyio.fail_after(5), pytest.raises(AgentCreationError) as caught:
            await owners[0].agents.create()
        assert caught.value.code == "OWNER_DISPOSED"
        assert seen == [True, True, True]
        assert stack.ctx.agents.list() == [stack.agent]


# ---- turn and step ---------------------------------------------------------------------------


async def test_A78_an_emptied_wake_offers_no_runtime_context() -> None:
    async with loop_stack(say("a")) as stack:
        stack.ctx.system_prompt.context("day", 1, "it is Monday")

        def remove(event: InboxInserted) -> None:
            stack.agent.inbox.remove(event.message.id)

        handle = stack.ctx.on(InboxInserted, remove, everywhere=True)
        lines = await stack.run("M")
        assert "~pre-step [] 1.1" in lines
        assert stack.model.requests == []
        handle()
        assert "~pre-step [N RC] 2.1" in await stack.run("N")


@pytest.mark.parametrize(("way", "stays"), [("steer", True), ("inject", True), ("followup", False)])
async def test_A80_what_keeps_a_turn_open_when_it_would_stop(way: str, stays: bool) -> None:
    async with loop_stack(say("a"), say("b")) as stack:
        asked: list[int] = []

        async def stopping(event: TurnStopping) -> None:
            asked.append(event.turn)
            if len(asked) == 1:
                getattr(event.agent, way)("S")

        stack.ctx.on(TurnStopping, stopping, everywhere=True)
        lines = await stack.run("M")
        assert ("step/start 1.2" in lines) is stays
        assert asked == ([1, 1] if stays else [1, 2])


async def test_A81_the_output_limit_sticks_to_the_turn() -> None:
    async with loop_stack(cut("half"), say("whole")) as stack:

        async def stopping(event: TurnStopping) -> None:
            if len(stack.model.requests) == 1:
                event.agent.steer("go on")

        stack.ctx.on(TurnStopping, stopping, everywhere=True)
        lines = await stack.run("M")
        assert "step/end 1.2" in lines
        assert turns_of(lines)[-1] == "turn/end 1 max-tokens"


async def test_A84_only_a_terminal_finish_is_offered_to_request_error() -> None:
    async def broken_assembly(
        event: SystemPromptAssemble, next_: Next[PromptAssembly]
    ) -> PromptAssembly:
        raise RuntimeError("assembly")

    async def broken_request(event: AgentRequest, next_: Next[LlmCallConfig]) -> LlmCallConfig:
        raise RuntimeError("request")

    def broken_stream(event: LlmStreamEvent, next_: object) -> AsyncIterator[StreamChunk]:
        raise RuntimeError("middleware")

    breaks: list[Callable[[Context], object]] = [
        lambda ctx: ctx.on(SystemPromptAssemble, broken_assembly, everywhere=True),
        lambda ctx: ctx.on(AgentRequest, broken_request, everywhere=True),
        lambda ctx: ctx.on(LlmStreamEvent, broken_stream, everywhere=True),
    ]
    for break_ in breaks:
        async with loop_stack(say("never")) as stack:
            break_(stack.ctx)
            lines = await stack.run("M")
            assert turns_of(lines)[-1] == "turn/end 1 error"
            assert not [line for line in lines if line.startswith("~request-error")]
    async with loop_stack(fail()) as stack:
        assert "~request-error SERVER" in await stack.run("M")


async def test_A85_the_loop_itself_never_flushes() -> None:
    flushed: list[object] = []
    async with loop_stack(call(("c1", "nope", "")), say("done")) as stack:

        async def flush(event: SessionFlush) -> None:
            flushed.append(event.session)

        stack.ctx.on(SessionFlush, flush, everywhere=True)
        await stack.run("M")
        assert flushed == []
        await stack.ctx.sessions.flush(stack.agent.session)
        assert len(flushed) == 1


# ---- interception ----------------------------------------------------------------------------


async def test_A92_input_during_agent_request_waits_and_an_append_there_is_sent() -> None:
    async with loop_stack(say("a"), say("b")) as stack:

        async def request(event: AgentRequest, next_: Next[LlmCallConfig]) -> LlmCallConfig:
            if event.step == 1:
                event.agent.inject("I")
                message = create_user_message("direct")
                event.agent.session.append(UserMessageEvent(message=message), surface_op="append")
            return await next_()

        stack.ctx.on(AgentRequest, request, everywhere=True)
        await stack.run("M")
        first, second = [
            [message_text(m) for m in options.messages if m.role == "user"]
            for options in stack.model.requests
        ]
        assert set(first) == {"direct", "M"}
        assert second[-1] == "I"


async def test_A93_the_first_retry_owns_the_recovery_and_a_raise_is_the_turns_error() -> None:
    async with loop_stack(fail(), say("ok"), fail("two"), fail("three"), say("never")) as stack:
        asked: list[str] = []

        async def second(event: AgentRequestError, next_: Next[Retry | None]) -> Retry | None:
            asked.append(f"second {event.failure.message}")
            if event.turn == 2:
                raise RuntimeError("the policy broke")
            return await next_()

        async def first(event: AgentRequestError, next_: Next[Retry | None]) -> Retry | None:
            asked.append(f"first {event.failure.message}")
            return Retry() if event.turn == 1 else await next_()

        stack.ctx.on(AgentRequestError, first, everywhere=True)
        stack.ctx.on(AgentRequestError, second, everywhere=True)
        assert turns_of(await stack.run("M"))[-1] == "turn/end 1 completed"
        assert asked == ["first overloaded"]
        await stack.run("N")
        assert asked[1:] == ["first two", "second two"]
        reason = last_end(stack)
        assert isinstance(reason, ErrorEnd)
        assert "the policy broke" in reason.error.message


async def test_A93_a_retry_that_comes_with_an_abort_is_ignored() -> None:
    async with loop_stack(fail(), say("never")) as stack:

        async def late(event: AgentRequestError, next_: Next[Retry | None]) -> Retry | None:
            stack.agent.cancel()
            return Retry()

        stack.ctx.on(AgentRequestError, late, everywhere=True)
        assert turns_of(await stack.run("M"))[-1] == "turn/end 1 aborted"
        assert len(stack.model.requests) == 1


async def test_A94_a_listener_may_shrink_the_history_and_try_again() -> None:
    async with loop_stack(say("long"), fail("too long", "OVERFLOW"), say("ok")) as stack:

        async def overflow(event: AgentRequestError, next_: Next[Retry | None]) -> Retry | None:
            session = event.agent.session
            nodes = session.surface.nodes
            before = session.surface.content_generation
            session.append(
                UserMessageEvent(message=create_user_message("summary")),
                surface_op=ReplaceOp(start_seq=nodes[1], end_seq=nodes[-2]),
                source_event_seqs=tuple(nodes[1:-1]),
            )
            shrunk = session.surface.content_generation != before
            return Retry() if shrunk else await next_()

        await stack.run("M")
        stack.ctx.on(AgentRequestError, overflow, everywhere=True)
        lines = await stack.run("N")
        assert turns_of(lines)[-1] == "turn/end 2 completed"
        assert "request/header series" in lines
        texts = [
            [message_text(m) for m in r.messages if m.role != "system"]
            for r in stack.model.requests
        ]
        assert texts[1:] == [["M", "long", "N"], ["summary", "N"]]


async def test_L67_a_failure_without_dispatch_has_no_retry_policy() -> None:
    class Patient(ScriptedModel):
        @override
        def provider_retry_policy(self, provider: str) -> RetryPolicy:  # type: ignore[override]  # the base has none
            return policy

    policy = resolve_retry_policy()
    policies: list[object] = []
    async with loop_stack(say("a")) as stack:
        patient = Patient(fail(), say("ok"))
        stack.ctx.llm.register_adapter(["patient"], patient)
        stack.handle = await stack.ctx.agents.create(provider="patient", model="m")

        async def failed(event: AgentRequestError, next_: Next[Retry | None]) -> Retry | None:
            policies.append(event.retry_policy)
            return None

        async def refusal() -> AsyncIterator[StreamChunk]:
            yield FinishChunk(ErrorFinish(LlmFailure(message="not asked", code="QUOTA")))

        def answer(event: LlmStreamEvent, next_: object) -> AsyncIterator[StreamChunk]:
            return refusal()

        stack.ctx.on(AgentRequestError, failed, everywhere=True)
        await stack.run("M")
        stack.ctx.on(LlmStreamEvent, answer, everywhere=True)
        await stack.run("N")
        assert policies == [policy, None]


# ---- request and tools -----------------------------------------------------------------------


async def test_A95_defaults_are_taken_anew_and_explicit_fields_survive() -> None:
    class Defaults(ScriptedModel):
        @override
        async def resolve_model(
            self, provider: str, model: str, signal: object = None
        ) -> LlmResolvedModelInfo:
            return LlmResolvedModelInfo(
                provider=provider, id=model, name=model, default_max_tokens=len(model)
            )

    async with loop_stack() as stack:
        model = Defaults(say("a"), say("b"), say("c"))
        stack.ctx.llm.register_adapter(["other"], model)
        stack.handle = await stack.ctx.agents.create(provider="other", model="xx")

        async def warm(event: AgentRequest, next_: Next[LlmCallConfig]) -> LlmCallConfig:
            config = await next_()
            return msgspec.structs.replace(config, temperature=0.5) if event.turn == 1 else config

        stack.ctx.on(AgentRequest, warm, everywhere=True)
        await stack.run("M")
        stack.agent.model.select(ModelSelection(provider="other", model="yyyy"))
        await stack.run("N")
        sent = [(r.model, r.temperature, r.max_tokens) for r in model.requests]
        assert sent == [("xx", 0.5, 2), ("yyyy", 0.5, 4)]


async def test_A102_the_order_of_tools_is_the_configurations() -> None:
    async with loop_stack(say("a")) as stack:
        for name in ("zebra", "ape"):
            stack.add_tool(name, fine)
        await stack.run("M")
        tools = stack.model.requests[0].tools or ()
        assert [tool.name for tool in tools] == ["ape", "zebra"]
    async with loop_stack(say("a"), prompt={"tool_order": [UNLISTED, "unknown"]}) as stack:
        stack.add_tool("ape", fine)
        lines = await stack.run("M")
        assert turns_of(lines)[-1] == "turn/end 1 error"
        assert not [line for line in lines if line.startswith("step/")]


def test_A112_what_the_request_derivation_repairs() -> None:
    source = ModelSource(provider="p", model="m")

    def asks(*calls: tuple[str, str]) -> Message:
        blocks = tuple(ToolCallBlock(id=CallId(i), name="t", arguments=a) for i, a in calls)
        return create_assistant_message(blocks, source)

    def answers(call_id: str, text: str = "ok") -> Message:
        content = (TextBlock(text),) if text else ()
        return create_tool_result_message(CallId(call_id), content, is_error=False)

    clean = [create_user_message("M"), asks(("a", "{}")), answers("a")]
    assert request_messages(clean) is clean
    history = [
        create_user_message("\ud800"),
        asks(("a", "[1]"), ("b", "{}")),
        answers("b", ""),
        create_assistant_message((), source),
        answers("orphan"),
        asks(("a", "{}")),
    ]
    repaired = [m for m in request_messages(history) if isinstance(m, Message)]
    assert request_messages(repaired) is repaired or list(request_messages(repaired)) == repaired
    roles = [message.role for message in repaired]
    assert roles == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    first, second = repaired[1], repaired[4]
    ids = [
        block.id for m in (first, second) for block in m.content if isinstance(block, ToolCallBlock)
    ]
    assert ids == ["a", "b", "a~2"]
    assert [m.tool_call_id for m in repaired if m.role == "tool"] == ids
    assert isinstance(first.content[0], ToolCallBlock)
    assert first.content[0].arguments == "{}"
    assert message_text(repaired[3]) == "(no content)"
    assert repaired[2].id == MessageId(f"missing-tool-result-{history[1].id}-a")
    message_text(repaired[0]).encode()


async def test_A120_an_abort_waits_for_the_adapter_to_close() -> None:
    class Careful(ScriptedModel):
        @override
        async def stream(self, options: GenerateOptions) -> AsyncIterator[StreamChunk]:
            try:
                yield say("x")[0]  # type: ignore[misc]  # the first step is a chunk
                stack.agent.cancel()
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    for _ in range(5):
                        await anyio.lowlevel.checkpoint()
                closed.append(stack.agent.status)

    closed: list[str] = []
    async with loop_stack() as stack:
        stack.ctx.llm.register_adapter(["careful"], Careful())
        stack.handle = await stack.ctx.agents.create(provider="careful", model="m")
        lines = await stack.run("M")
        assert closed == ["running"]
        assert turns_of(lines)[-1] == "turn/end 1 aborted"


async def test_A118_the_signal_decides_and_not_the_exception() -> None:
    async with loop_stack(say("never")) as stack:

        async def hook(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            if event.turn == 1:
                stack.agent.cancel()  # works before anything was cancelled natively
                raise RuntimeError("comes with the abort")
            raise anyio.BrokenResourceError  # no abort: this one counts

        stack.ctx.on(PreStep, hook, everywhere=True)
        assert turns_of(await stack.run("M"))[-1] == "turn/end 1 aborted"
        assert turns_of(await stack.run("N"))[-1] == "turn/end 2 error"


async def test_A26_what_a_decision_leaves_out_does_not_come_back() -> None:
    async with loop_stack(say("a")) as stack:

        async def only(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
            kept = tuple(m for m in event.messages if message_text(m) != "dropped")
            return Enter(kept)

        stack.ctx.on(PreStep, only, everywhere=True)
        stack.agent.inject("dropped")
        await stack.run("M")
        texts = [message_text(m) for m in stack.model.requests[0].messages]
        assert "dropped" not in texts
        assert (stack.agent.inbox.next_step, stack.agent.inbox.next_turn) == ((), ())


async def test_A43_that_nobody_listens_changes_nothing_in_the_log() -> None:
    """Payloads and questions for nobody are left out; the log must not tell."""

    def replies() -> list[list[Step]]:
        return [call(("c1", "t", ""), ("c2", "t", "")), say("done"), fail(), cut("half")]

    logs: list[list[str]] = []
    for heard in (True, False):
        model = ScriptedModel(*replies())
        async with Context() as ctx:
            mount_loop(ctx)
            await ctx.settled()
            ctx.llm.register_adapter(["test"], model)
            stack = LoopStack(ctx, model, Recorder(ctx if heard else Context()))
            stack.handle = await ctx.agents.create(provider="test", model="m")
            stack.add_tool("t", fine)
            for text in ("M", "N", "O"):
                await stack.run(text)
            logs.append([line_of(event) for event in stack.agent.session.events])
    assert logs[0] == logs[1]
    assert logs[0].count("tool/result c2") == 1
