"""What a call answers: always a result, of one shape, whatever takes part in it."""

import gc
from collections.abc import Awaitable, Callable
from dataclasses import replace

import anyio
import anyio.lowlevel
import msgspec
import pytest
from typing_extensions import TypedDict

from dsh_cordis import Next
from dsh_llm import AbortController, CallId, TextBlock, create_user_message
from dsh_session import ToolErrorInfo
from dsh_tools import (
    Accept,
    Ask,
    Block,
    Content,
    Deny,
    JsonSchemaError,
    PostToolDecision,
    PreToolDecision,
    ToolDefinition,
    ToolExecutionInput,
    ToolExecutionResult,
    ToolFailure,
    ToolFault,
    ToolOutput,
    ToolRunContext,
    ToolsExecute,
    ToolsPostExecute,
    ToolsPreExecute,
    ToolsResult,
    ToolSuccess,
    tool,
)
from dsh_tools.testing import ToolBench, code_of, text_of, tool_bench


@tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@tool
async def fail() -> str:
    """Do not do it."""
    raise LookupError("gone")


def named(name: str, **hooks: object) -> ToolDefinition:
    """`echo` with hooks."""
    return tool(name=name, **hooks)(echo.function)  # type: ignore[call-overload, no-any-return]  # any of its keywords


class Ended(TypedDict):
    """How a run ended."""

    exitCode: int


def raise_it(*given: object) -> None:
    raise RuntimeError("broke")


def post(bench: ToolBench, answer: Callable[[ToolsPostExecute], PostToolDecision]) -> None:
    async def listener(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
        return answer(event)

    bench.ctx.on(ToolsPostExecute, listener)


async def test_T45_an_unpleasant_outcome_is_a_value_and_prose_is_the_renderers() -> None:
    def show(arguments: object, value: dict[str, int]) -> str:
        return f"it ended with {value['exitCode']}"

    @tool(render=show)
    async def run(code: int) -> Ended:
        """Run something."""
        if code < 0:
            raise OSError("it could not be started")
        return {"exitCode": code}

    async with tool_bench(run) as bench:
        result = await bench.run("run", code=3)
        assert isinstance(result, ToolSuccess)
        assert (result.value, text_of(result)) == ({"exitCode": 3}, "it ended with 3")
        failed = await bench.run("run", code=-1)
        assert isinstance(failed, ToolFailure)
        assert text_of(failed) == "Error: it could not be started"


def _no_approval(bench: ToolBench) -> None:
    async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
        return Ask()

    class Approvals:
        async def request(self, *given: object, **rest: object) -> str:
            raise RuntimeError("broke")

    bench.ctx.on(ToolsPreExecute, pre)
    bench.ctx.provide("approval", Approvals())


def _listener(event: type[ToolsPreExecute | ToolsExecute | ToolsPostExecute]) -> object:
    async def broken(event: object, next_: object) -> None:
        raise RuntimeError("broke")

    return lambda bench: bench.ctx.on(event, broken)


@pytest.mark.parametrize(
    "breaking",
    [
        pytest.param(_listener(ToolsPreExecute), id="pre listener"),
        pytest.param(_no_approval, id="approval"),
        pytest.param(lambda bench: bench.tools.guard(raise_it), id="guard"),
        pytest.param(_listener(ToolsExecute), id="wrapper"),
        pytest.param(_listener(ToolsPostExecute), id="post listener"),
        pytest.param({"project_content": raise_it}, id="projector"),
        pytest.param({"finalize_content": raise_it}, id="finalizer"),
        pytest.param({"render": raise_it}, id="renderer"),
        pytest.param({"presentation_meta": raise_it}, id="meta"),
        pytest.param(lambda bench: bench.ctx.on(ToolsResult, raise_it), id="observer"),
    ],
)
async def test_T46_whatever_breaks_there_is_one_result_and_it_is_published(
    breaking: dict[str, object] | Callable[[ToolBench], object],
) -> None:
    hooks = breaking if isinstance(breaking, dict) else {}
    async with tool_bench(named("echo", **hooks)) as bench:
        published: list[ToolExecutionResult] = []
        if callable(breaking):
            breaking(bench)
        bench.ctx.on(ToolsResult, lambda event: published.append(event.result))
        result = await bench.run_as(bench.agent(), "echo", text="x")
        assert published == [result]
        # An observer is told of the result, and has no say in it.
        assert result.is_error or text_of(result) == "x"
        assert not result.is_error or "broke" in text_of(result)


class CountingInput(ToolExecutionInput):
    """Counts how often each field is read."""

    def __getattribute__(self, name: str) -> object:  # type: ignore[explicit-override]  # of object
        if not name.startswith("_"):
            READS.append(name)
        return super().__getattribute__(name)


READS: list[str] = []


async def test_T47_each_field_of_the_input_is_read_once() -> None:
    async with tool_bench(echo) as bench:
        given = bench.call("echo", {"text": "x"})
        counting = CountingInput(
            name=given.name,
            arguments=given.arguments,
            call_id=given.call_id,
            signal=given.signal,
        )
        READS.clear()
        assert text_of(await bench.tools.execute(counting)) == "x"
        assert sorted(READS) == [
            "agent",
            "arguments",
            "call_id",
            "name",
            "parent",
            "root_call_id",
            "signal",
        ]


async def test_T47_the_models_call_is_this_call_unless_told_otherwise() -> None:
    records: list[ToolRunContext] = []
    async with tool_bench(echo) as bench:
        bench.ctx.on(ToolsResult, lambda event: records.append(event.exec))
        given = bench.call("echo", {"text": "x"})
        await bench.tools.execute(given)
        nested = ToolExecutionInput(
            name="echo",
            arguments={"text": "y"},
            call_id=bench.call("echo", {}).call_id,
            signal=AbortController().signal,
            root_call_id=given.call_id,
            parent=records[0].token,
        )
        await bench.tools.execute(nested)
        direct, inner = records
        assert (direct.call_id, direct.root_call_id, direct.parent) == (
            given.call_id,
            given.call_id,
            None,
        )
        assert (inner.call_id, inner.root_call_id, inner.parent) == (
            nested.call_id,
            given.call_id,
            direct.token,
        )
        with pytest.raises(TypeError, match="signal"):
            ToolExecutionInput("echo", {}, given.call_id)  # type: ignore[call-arg]  # what is tested


async def test_T49_tokens_tell_calls_of_one_id_apart() -> None:
    both = anyio.Event()
    seen: list[tuple[str, object, object]] = []

    @tool
    async def work(run: ToolRunContext, text: str) -> str:
        """Work."""
        seen.append(("body", run.token, text))
        if text == "b":
            both.set()
        await both.wait()
        return text

    async with tool_bench(work) as bench:

        async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            assert isinstance(event.exec.arguments, dict)
            seen.append(("pre", event.exec.token, event.exec.arguments["text"]))
            return await next_()

        def published(event: ToolsResult) -> None:
            seen.append(("result", event.exec.token, text_of(event.result)))

        bench.ctx.on(ToolsPreExecute, pre)
        bench.ctx.on(ToolsResult, published)
        call_id = bench.call("work", {}).call_id
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for text in ("a", "b"):
                    signal = AbortController().signal
                    given = ToolExecutionInput("work", {"text": text}, call_id, signal)
                    tasks.start_soon(bench.tools.execute, given)
        tokens = {text: {token for _, token, of in seen if of == text} for text in ("a", "b")}
        assert {kind for kind, _, of in seen if of == "a"} == {"pre", "body", "result"}
        assert {text: len(each) for text, each in tokens.items()} == {"a": 1, "b": 1}
        assert not tokens["a"] & tokens["b"]


async def test_T63_policies_judge_every_outcome_under_the_callers_signal() -> None:
    judged: list[tuple[str, bool, bool]] = []
    foreign = AbortController()
    async with tool_bench(echo, fail) as bench:

        def judge(event: ToolsPostExecute) -> PostToolDecision:
            run = event.exec
            judged.append((run.name, event.result.is_error, run.signal is foreign.signal))
            return Accept()

        async def careless(
            event: ToolsExecute, next_: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            event.exec.signal = foreign.signal
            return await next_()

        caller = AbortController()

        async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            if event.exec.name == "denied":
                return Deny("no")
            if event.exec.name == "aborted":
                caller.abort()
            return await next_()

        post(bench, judge)
        bench.ctx.on(ToolsPreExecute, pre)
        bench.ctx.on(ToolsExecute, careless)
        for name in ("echo", "fail", "denied", "nobody"):
            await bench.run(name, **({"text": "x"} if name == "echo" else {}))
        call = bench.call("aborted", {}, signal=caller.signal)
        assert code_of(await bench.tools.execute(call)) == "ABORTED_BEFORE_DISPATCH"
        assert judged == [
            ("echo", False, False),
            ("fail", True, False),
            ("denied", True, False),
            ("nobody", True, False),
            ("aborted", True, False),
        ]


async def test_T66_contexts_survive_an_abort_and_not_a_broken_policy() -> None:
    body, policy = create_user_message("body"), create_user_message("policy")
    caller = AbortController()

    @tool
    async def work(run: ToolRunContext) -> str:
        """Work."""
        run.defer_context(body)
        return "done"

    async with tool_bench(work) as bench:
        steps: list[Callable[[], object]] = [lambda: None, caller.abort, raise_it]

        def judge(event: ToolsPostExecute) -> PostToolDecision:
            steps.pop(0)()
            return Accept(additional_contexts=(policy,))

        post(bench, judge)
        good = await bench.run("work")
        assert (good.is_error, good.additional_contexts) == (False, (body, policy))
        late = await bench.tools.execute(bench.call("work", {}, signal=caller.signal))
        assert (code_of(late), late.additional_contexts) == ("ABORTED", (body, policy))
        broken = await bench.run("work")
        assert (text_of(broken), broken.additional_contexts) == ("Error: broke", ())


async def test_T71_a_reason_is_for_people_and_never_in_the_content() -> None:
    async with tool_bench(echo) as bench:
        info = ToolErrorInfo(name="PolicyError", code="NOT_TODAY", reason="rule 7 of the house")

        async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            return Deny("it is sunday", info)

        good = await bench.run("echo", text="x")
        assert good == ToolSuccess(value="x", content=(TextBlock("x"),))
        assert (good.is_error, good.meta) == (False, msgspec.UNSET)
        bench.ctx.on(ToolsPreExecute, pre)
        denied = await bench.run("echo", text="x")
        assert denied == ToolFailure(
            error=ToolFault(message="it is sunday", info=info),
            content=(TextBlock("Error: it is sunday"),),
        )
        assert denied.is_error


async def test_T75_codes_and_names_of_the_registrys_own_failures() -> None:
    wrong = replace(echo, name="wrong", output=ToolOutput({"type": "null"}, lambda a, v: "x"))
    caller = AbortController()

    @tool
    async def late() -> str:
        """Be aborted."""
        caller.abort()
        return "done"

    async with tool_bench(echo, wrong, late) as bench:
        aborted = AbortController()
        aborted.abort()
        results = [
            await bench.run("nobody"),
            await bench.run("echo"),
            await bench.run("wrong", text="x"),
            await bench.tools.execute(bench.call("late", {}, signal=caller.signal)),
            await bench.tools.execute(bench.call("late", {}, signal=aborted.signal)),
        ]
        infos = [result.error.info for result in results if isinstance(result, ToolFailure)]
        assert [(info.name, info.code) for info in infos if info is not None] == [
            ("ToolNotFoundError", "UNKNOWN_TOOL"),
            ("ToolArgsError", "INVALID_ARGS"),
            ("ToolOutputError", "INVALID_TOOL_OUTPUT"),
            ("AbortError", "ABORTED"),
            ("AbortError", "ABORTED_BEFORE_DISPATCH"),
        ]
        with pytest.raises(JsonSchemaError) as caught:
            bench.tools.register(replace(echo, output=ToolOutput({"anyOf": []}, lambda a, v: "x")))
        assert caught.value.code == "UNSUPPORTED_SCHEMA"


async def test_T79_a_composite_tool_forwards_what_it_wants_and_failures_conclude_nothing() -> None:
    note = create_user_message("note")
    inner: list[ToolExecutionResult] = []

    @tool
    async def part(run: ToolRunContext, end: str) -> str:
        """Do a part."""
        run.defer_context(note)
        run.conclude_turn()
        if end == "failed":
            raise RuntimeError("broke")
        return end

    async with tool_bench(part) as bench:

        @tool
        async def whole(run: ToolRunContext, end: str, forward: bool) -> str:
            """Do it by parts."""
            call = bench.call("part", {"end": end}, signal=run.signal, parent=run.token)
            result = await bench.tools.execute(call)
            inner.append(result)
            if forward:
                for message in result.additional_contexts:
                    run.defer_context(message)
                if isinstance(result, ToolSuccess) and result.concludes_turn:
                    run.conclude_turn()
            return text_of(result)

        def judge(event: ToolsPostExecute) -> PostToolDecision:
            blocked = event.exec.name == "part" and event.exec.arguments == {"end": "blocked"}
            return Block("not this") if blocked else Accept()

        bench.tools.register(whole)
        post(bench, judge)
        outcomes = []
        for end, forward in (("ok", False), ("ok", True), ("failed", True), ("blocked", True)):
            result = await bench.run("whole", end=end, forward=forward)
            assert isinstance(result, ToolSuccess)
            outcomes.append((len(result.additional_contexts), result.concludes_turn))
        assert [each.is_error for each in inner] == [False, False, True, True]
        assert outcomes == [(0, False), (1, True), (1, False), (0, False)]


def content_of(result: ToolExecutionResult) -> tuple[object, ...]:
    return result.content


@pytest.mark.parametrize("nothing", ["", [], ()])
async def test_T126_no_result_is_without_a_block(nothing: Content) -> None:
    everyone = {
        "rendered": {"render": lambda arguments, value: nothing},
        "projected": {"project_content": lambda run, result: nothing},
        "finalized": {"finalize_content": lambda run, result: nothing},
        "accepted": {},
        "blocked": {},
        "wrapped": {},
    }
    async with tool_bench(*(named(name, **hooks) for name, hooks in everyone.items())) as bench:

        def judge(event: ToolsPostExecute) -> PostToolDecision:
            if event.exec.name == "blocked":
                return Block(nothing)
            return Accept(content=nothing) if event.exec.name == "accepted" else Accept()

        async def around(
            event: ToolsExecute, next_: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            if event.exec.name == "wrapped":
                return ToolFailure(error=ToolFault(message="m"), content=())
            return await next_()

        post(bench, judge)
        bench.ctx.on(ToolsExecute, around)
        for name in everyone:
            result = await bench.run(name, text="x")
            assert content_of(result) == (TextBlock("(no output)"),), name


async def _by_stages(bench: ToolBench, call: ToolExecutionInput) -> ToolExecutionResult:
    """What `execute` does, each stage in a task of its own."""
    scheduler = bench.tools.scheduler
    answers: list[ToolExecutionResult] = []
    prepared = await scheduler.prepare(call)
    run, given = prepared.exec, prepared.result

    async def stage(which: Callable[..., object], *arguments: object) -> None:
        answers.append(await which(*arguments))  # type: ignore[misc]  # a stage

    async def elsewhere(which: Callable[..., object], *arguments: object) -> ToolExecutionResult:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(stage, which, *arguments)
        return answers.pop()

    assert (prepared.kind == "dispatch") is (given is None)
    result = await elsewhere(scheduler.dispatch, run) if given is None else given
    ending = scheduler.finish if prepared.kind == "final-result" else scheduler.finalize
    return await elsewhere(ending, run, result)


@pytest.mark.parametrize(
    ("name", "arguments", "kind"),
    [
        pytest.param("echo", {"text": "x"}, "dispatch", id="success"),
        pytest.param("fail", {}, "dispatch", id="failed body"),
        pytest.param("nobody", {}, "dispatch", id="unknown tool"),
        pytest.param("denied", {}, "post-result", id="denial"),
        pytest.param("echo", {"text": {1}}, "final-result", id="no JSON"),
    ],
)
async def test_T132_the_stages_one_by_one_are_what_execute_does(
    name: str, arguments: object, kind: str
) -> None:
    async with tool_bench(echo, fail) as bench:
        seen: list[str] = []

        def guard(run: ToolRunContext) -> str | None:
            seen.append("guard")
            return "no" if run.name == "denied" else None

        async def around(
            event: ToolsExecute, next_: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            seen.append("execute")
            return await next_()

        def judge(event: ToolsPostExecute) -> PostToolDecision:
            seen.append("post")
            return Accept()

        bench.tools.guard(guard)
        bench.ctx.on(ToolsExecute, around)
        post(bench, judge)
        bench.ctx.on(ToolsResult, lambda event: seen.append("result"))
        prepared = await bench.tools.scheduler.prepare(bench.call(name, arguments))
        assert prepared.kind == kind
        seen.clear()
        whole = await bench.tools.execute(bench.call(name, arguments))
        at_once, seen = seen, []
        assert await _by_stages(bench, bench.call(name, arguments)) == whole
        assert seen == at_once
        assert at_once[-1] == "result"


async def answers_at_once(bench: ToolBench) -> list[bool]:
    """Which of the stages of a call of `echo` need no task."""
    scheduler = bench.tools.scheduler
    at_gate = scheduler.preparing(bench.call("echo", {"text": "x"}))
    prepared = await at_gate
    at_body = scheduler.dispatching(prepared.exec)
    at_end = scheduler.finalizing(prepared.exec, await at_body)
    assert text_of(await at_end) == "x"
    return [at_gate.immediate, at_body.immediate, at_end.immediate]


async def test_T132_a_stage_tells_whether_somebody_takes_part_in_it() -> None:
    async def around(event: ToolsExecute, next_: Next[ToolExecutionResult]) -> ToolExecutionResult:
        return await next_()

    async def ask(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
        return await next_()

    @tool
    async def wait() -> str:
        """Wait."""
        await anyio.lowlevel.checkpoint()
        return ""

    async with tool_bench(echo, wait) as bench:
        scheduler = bench.tools.scheduler
        assert await answers_at_once(bench) == [True, True, True]
        waiting = await scheduler.prepare(bench.call("wait", {}))
        assert not scheduler.dispatching(waiting.exec).immediate
        bench.tools.guard(lambda run: None)
        assert await answers_at_once(bench) == [True, True, True]
        bench.ctx.on(ToolsPreExecute, ask)
        bench.ctx.on(ToolsExecute, around)
        post(bench, lambda event: Accept())
        assert await answers_at_once(bench) == [False, False, False]


async def test_T132_a_listener_that_hands_on_what_next_gives_costs_no_task() -> None:
    async with tool_bench(echo) as bench:
        bench.ctx.on(ToolsPreExecute, lambda event, next_: next_())
        bench.ctx.on(ToolsExecute, lambda event, next_: next_())
        bench.ctx.on(ToolsPostExecute, lambda event, next_: next_())
        assert await answers_at_once(bench) == [True, True, True]


async def test_T16_a_guard_registered_by_such_a_listener_counts_for_this_call() -> None:
    async with tool_bench(echo) as bench:

        def forbid(
            event: ToolsPreExecute, next_: Next[PreToolDecision]
        ) -> Awaitable[PreToolDecision]:
            bench.tools.guard(lambda run: "not any more")
            return next_()

        bench.ctx.on(ToolsPreExecute, forbid)
        assert text_of(await bench.run("echo", text="x")) == "Error: not any more"


async def test_T58_a_tool_that_such_a_wrapper_takes_away_is_unknown() -> None:
    async with tool_bench() as bench:
        registered = bench.tools.register(echo)

        def remove(
            event: ToolsExecute, next_: Next[ToolExecutionResult]
        ) -> Awaitable[ToolExecutionResult]:
            registered()
            return next_()

        bench.ctx.on(ToolsExecute, remove)
        assert code_of(await bench.run("echo", text="x")) == "UNKNOWN_TOOL"


async def test_T62_what_such_a_listener_raises_fails_its_call_only() -> None:
    for event in (ToolsPreExecute, ToolsExecute, ToolsPostExecute):
        async with tool_bench(echo) as bench:
            bench.ctx.on(event, raise_it)  # type: ignore[misc]  # a class out of three
            assert text_of(await bench.run("echo", text="x")) == "Error: broke"


async def test_T132_a_stage_that_is_dropped_says_nothing() -> None:
    async def ask(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
        return await next_()

    async with tool_bench(echo) as bench:
        bench.ctx.on(ToolsPreExecute, ask)
        stage = bench.tools.scheduler.preparing(bench.call("echo", {"text": "x"}))
        assert not stage.immediate
        del stage  # a coroutine that is never awaited would warn, and warnings fail tests
        gc.collect()


async def test_T60_a_foreign_success_of_a_tool_that_is_gone_is_an_unknown_tool() -> None:
    async with tool_bench() as bench:
        registered = bench.tools.register(echo)
        kept = await bench.run("echo", text="x")
        judged: list[str] = []

        async def cached(
            event: ToolsExecute, next_: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            registered()
            return kept

        bench.ctx.on(ToolsExecute, cached)

        def judge(event: ToolsPostExecute) -> PostToolDecision:
            judged.append("post")
            return Accept()

        post(bench, judge)
        assert code_of(await bench.run("echo", text="x")) == "UNKNOWN_TOOL"
        assert judged == []


async def test_T60_a_wrapper_that_answers_with_something_else_fails_its_call() -> None:
    async def odd(event: ToolsExecute, next_: Next[ToolExecutionResult]) -> ToolExecutionResult:
        return "done"  # type: ignore[return-value]  # what is tested

    async with tool_bench(echo) as bench:
        bench.ctx.on(ToolsExecute, odd)
        result = await bench.run("echo", text="x")
        assert code_of(result) == "INVALID_DECISION"
        assert "'echo' answered 'done'" in text_of(result)


async def test_T66_a_context_of_a_projection_stands_behind_those_of_the_body() -> None:
    first, second = create_user_message("first"), create_user_message("second")

    def project(run: ToolRunContext, result: ToolExecutionResult) -> Content | None:
        run.defer_context(second)
        return None

    @tool(project_content=project)
    async def work(run: ToolRunContext) -> str:
        """Work."""
        run.defer_context(first)
        return "done"

    async with tool_bench(work) as bench:
        assert (await bench.run("work")).additional_contexts == (first, second)
        bench.ctx.on(ToolsPostExecute, lambda event, next_: next_())
        assert (await bench.run("work")).additional_contexts == (first, second)
        post(bench, lambda event: Accept())
        assert (await bench.run("work")).additional_contexts == (first, second)


async def test_T132_a_record_that_was_not_prepared_is_refused() -> None:
    async with tool_bench(echo) as bench:
        record = ToolRunContext(
            "echo", {}, CallId("c1"), AbortController().signal, None, None, None
        )
        with pytest.raises(TypeError, match="was not made by prepare"):
            await bench.tools.scheduler.dispatch(record)
