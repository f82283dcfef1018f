"""The stages of a call, in order, and what each may do."""

import enum
import hashlib
from typing import Annotated, Self

import anyio
import msgspec
import pytest
from pydantic import AfterValidator, BaseModel, model_validator

from dsh_brand import HarnessError, Json
from dsh_cordis import Next
from dsh_llm import AbortController, TextBlock, create_user_message
from dsh_session import ToolErrorInfo
from dsh_tools import (
    Accept,
    Allow,
    Ask,
    Block,
    Deny,
    PostToolDecision,
    PreToolDecision,
    ToolDefinition,
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
    texts,
    tool,
)
from dsh_tools.testing import ToolBench, code_of, text_of, tool_bench


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@tool
async def echo(text: str) -> str:
    """Say it again."""
    return text


@tool
async def fail(text: str) -> str:
    """Do not do it."""
    raise LookupError(text)


@tool
async def remember(run: ToolRunContext, text: str, end: bool = False) -> str:
    """Leave a note for later."""
    run.defer_context(create_user_message(text))
    if end:
        run.conclude_turn()
    return "noted"


def notes(result: ToolExecutionResult) -> list[str]:
    found = []
    for message in result.additional_contexts:
        (block,) = message.content
        assert isinstance(block, TextBlock)
        found.append(block.text)
    return found


async def test_T52_T120_stages_run_in_order_and_once() -> None:
    async with tool_bench(echo) as bench:
        seen: list[str] = []

        async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            seen.append("pre")
            return await next_()

        async def around(
            event: ToolsExecute,
            next_: Next[ToolExecutionResult],
        ) -> ToolExecutionResult:
            seen.append("execute")
            return await next_()

        async def post(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
            seen.append(f"post {event.result.is_error}")
            return await next_()

        bench.ctx.on(ToolsPreExecute, pre)
        bench.tools.guard(lambda run: seen.append("guard"))
        bench.ctx.on(ToolsExecute, around)
        bench.ctx.on(ToolsPostExecute, post)
        published: list[ToolExecutionResult] = []
        bench.ctx.on(ToolsResult, lambda event: published.append(event.result))
        result = await bench.run("echo", text="hi")
        assert seen == ["pre", "guard", "execute", "post False"]
        assert result == ToolSuccess(value="hi", content=(TextBlock("hi"),))
        assert published == [result]
        assert published[0] is result


async def test_T48_T51_arguments_that_are_no_json_end_the_call_before_any_policy() -> None:
    async with tool_bench(echo) as bench:
        seen: list[object] = []

        async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            seen.append("policy")
            return await next_()

        bench.ctx.on(ToolsPreExecute, pre)
        bench.ctx.on(ToolsResult, lambda event: seen.append(event.exec.arguments))
        controller = AbortController()
        controller.abort()
        for bad in (float("inf"), {1: 2}, ("a",), "\ud800"):
            call = bench.call("echo", {"text": bad}, signal=controller.signal)
            result = await bench.tools.execute(call)
            assert code_of(result) is None
            assert text_of(result).startswith("Error: the arguments cannot be passed on")
        assert seen == [None] * 4


async def test_T39_T96_wrong_arguments_name_everything_that_is_wrong() -> None:
    async with tool_bench(echo) as bench:
        result = await bench.run("echo", texts="x")
        assert code_of(result) == "INVALID_ARGS"
        assert "'text' is required" in text_of(result)
        cut = await bench.tools.execute(bench.call("echo", '{"text": "a'))
        assert code_of(cut) == "INVALID_ARGS"
        assert "cut off at the end" in text_of(cut)
        broken = await bench.tools.execute(bench.call("echo", '{"text": nope}'))
        assert "char 9" in text_of(broken)
        listed = await bench.tools.execute(bench.call("echo", [1]))
        assert "an object was expected, not [1]" in text_of(listed)


async def test_T40_the_body_gets_its_own_values_defaults_and_no_unknown_keys() -> None:
    got: list[object] = []

    @tool
    async def take(items: list[Json], limit: int = 7) -> str:
        """Take."""
        items.append("more")
        got.extend([items, limit])
        return ""

    async with tool_bench(take) as bench:
        given = {"items": [{"a": 1}], "unknown": 1}
        result = await bench.run("take", **given)
        assert got == [[{"a": 1}, "more"], 7]
        assert given["items"] == [{"a": 1}]
        assert text_of(result) == "(no output)"


async def test_T25_integral_floats_reach_the_body_as_integers() -> None:
    got: list[object] = []

    @tool
    async def take(whole: int, real: float) -> str:
        """Take."""
        got.extend([whole, real])
        return "x"

    async with tool_bench(take) as bench:
        await bench.run("take", whole=2.0, real=3)
    assert [(value, type(value)) for value in got] == [(2, int), (3.0, float)]


async def test_T36_an_explicit_null_is_no_way_to_leave_a_parameter_out() -> None:
    @tool
    async def take(limit: int | None = None) -> str:
        """Take."""
        return repr(limit)

    async with tool_bench(take) as bench:
        assert text_of(await bench.run("take")) == "None"
        refused = await bench.run("take", limit=None)
        assert "'limit': expected an integer, not null" in text_of(refused)


class Range(BaseModel):
    low: int
    high: int

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.low > self.high:
            raise ValueError("low is above high")
        return self


def even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


async def test_T39_failures_of_value_validators_are_told_with_their_paths() -> None:
    @tool
    async def take(
        ranges: list[Range], pair: Annotated[int, AfterValidator(even)], color: Color
    ) -> str:
        """Take."""
        return f"{ranges[0].high} {pair} {color.name}"

    async with tool_bench(take) as bench:
        good = {"ranges": [{"low": 1, "high": 2.0}], "pair": 4, "color": "red"}
        assert text_of(await bench.run("take", **good)) == "2 4 RED"
        bad = {"ranges": [{"low": 3, "high": 2}], "pair": 3, "color": "red"}
        result = await bench.run("take", **bad)
        assert code_of(result) == "INVALID_ARGS"
        assert "'ranges[0]': Value error, low is above high" in text_of(result)
        assert "'pair': " in text_of(result)


async def test_T41_typed_values_are_dumped_and_wrong_ones_told() -> None:
    values: list[object] = [Range(low=1, high=2), None]

    @tool(render=lambda arguments, value: f"{value}")
    async def give() -> Range:
        """Give."""
        return values.pop(0)  # type: ignore[return-value]  # the second one is wrong

    async with tool_bench(give) as bench:
        result = await bench.run("give")
        assert isinstance(result, ToolSuccess)
        assert result.value == {"low": 1, "high": 2}
        wrong = await bench.run("give")
        assert code_of(wrong) == "INVALID_TOOL_OUTPUT"
        assert "NoneType" in text_of(wrong)


async def test_T53_T56_a_denial_is_a_post_result_with_its_reason() -> None:
    async with tool_bench(echo) as bench:
        seen: list[bool] = []
        info = ToolErrorInfo(name="PolicyError", code="NOT_TODAY")
        decision: PreToolDecision = Deny("it is sunday")

        async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            return decision

        async def post(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
            seen.append(event.result.is_error)
            return await next_()

        bench.ctx.on(ToolsPreExecute, pre)
        bench.ctx.on(ToolsPostExecute, post)
        first = await bench.run("echo", text="x")
        assert (text_of(first), code_of(first)) == ("Error: it is sunday", None)
        decision = Deny("it is sunday", info)
        assert code_of(await bench.run("echo", text="x")) == "NOT_TODAY"
        assert seen == [True, True]


class Approvals:
    """An approval service that answers as told."""

    def __init__(self, answer: str, controller: AbortController | None = None) -> None:
        self.answer = answer
        self.controller = controller
        self.asked: list[object] = []

    async def request(self, agent: object, tool_name: str, **rest: object) -> str:
        self.asked.append((tool_name, rest["reason"]))
        if self.controller is not None:
            self.controller.abort()
        return self.answer


def ask_always(bench: ToolBench) -> None:
    async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
        return Ask("why not")

    bench.ctx.on(ToolsPreExecute, pre)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("allowed-once", "x"),
        ("rejected", "Error: tool 'echo' was not run: the request for approval was rejected"),
        ("cancelled", "Error: tool 'echo' was not run: the request for approval was cancelled"),
        ("unavailable", "Error: tool 'echo' was not run: nobody could be asked for approval"),
        ("perhaps", "Error: the approval service answered 'perhaps', which means nothing"),
    ],
)
async def test_T54_approval_answers(answer: str, text: str) -> None:
    async with tool_bench(echo) as bench:
        ask_always(bench)
        approvals = Approvals(answer)
        bench.ctx.provide("approval", approvals)
        assert text_of(await bench.run_as(bench.agent(), "echo", text="x")) == text
        assert approvals.asked == [("echo", "why not")]
        without_agent = await bench.run("echo", text="x")
        assert "without an agent" in text_of(without_agent)
        assert len(approvals.asked) == 1


async def test_T54_without_an_approval_service_the_reason_denies() -> None:
    async with tool_bench(echo) as bench:
        ask_always(bench)
        assert text_of(await bench.run("echo", text="x")) == "Error: why not"


async def test_T55_an_abort_during_approval_wins_over_cancelled_only() -> None:
    for answer, expected in (("cancelled", "ABORTED_BEFORE_DISPATCH"), ("rejected", None)):
        async with tool_bench(echo) as bench:
            ask_always(bench)
            controller = AbortController()
            bench.ctx.provide("approval", Approvals(answer, controller))
            call = bench.call("echo", {"text": "x"}, agent=bench.agent(), signal=controller.signal)
            assert code_of(await bench.tools.execute(call)) == expected


async def test_T57_a_wrapper_may_run_the_body_again_or_answer_for_it() -> None:
    attempts: list[int] = []

    @tool
    async def flaky() -> str:
        """Work the second time."""
        attempts.append(1)
        if len(attempts) < 2:
            raise ConnectionError("later")
        return "done"

    async def retry(event: ToolsExecute, next_: Next[ToolExecutionResult]) -> ToolExecutionResult:
        result = await next_()
        return await next_() if result.is_error else result

    async with tool_bench(flaky) as bench:
        handle = bench.ctx.on(ToolsExecute, retry)
        assert text_of(await bench.run("flaky")) == "done"
        handle()
        foreign = ToolFailure(error=ToolFault(message="m"), content=(TextBlock("cached"),))

        async def answer(
            event: ToolsExecute,
            next_: Next[ToolExecutionResult],
        ) -> ToolExecutionResult:
            return foreign

        bench.ctx.on(ToolsExecute, answer)
        assert (await bench.run("flaky")).content == foreign.content
        assert len(attempts) == 2


FAULT = ToolFault(message="m")


async def test_T58_T127_an_unknown_tool_is_a_failed_body_with_similar_names() -> None:
    async with tool_bench(echo) as bench:
        seen: list[bool] = []

        async def around(
            event: ToolsExecute,
            next_: Next[ToolExecutionResult],
        ) -> ToolExecutionResult:
            result = await next_()
            seen.append(result.is_error)
            return result

        bench.ctx.on(ToolsExecute, around)
        result = await bench.run("ecko")
        assert code_of(result) == "UNKNOWN_TOOL"
        assert text_of(result) == "Error: unknown tool 'ecko'; did you mean 'echo'?"
        assert seen == [True]
        odd = await bench.run("x\n" + "y" * 100)
        assert "'x\\n" in text_of(odd)
        assert len(text_of(odd)) < 100


def raw(schema: dict[str, Json], value: object, render: object = None) -> ToolDefinition:
    async def execute(arguments: object, run: ToolRunContext) -> object:
        return value

    output = ToolOutput(schema=schema, render=render or (lambda a, v: "ok"))  # type: ignore[arg-type]  # what is tested
    return ToolDefinition(
        name="raw", description="Raw.", parameters={}, output=output, execute=execute
    )


@pytest.mark.parametrize(
    ("definition", "cause"),
    [
        pytest.param(raw({}, {1, 2}), "set", id="not lossless"),
        pytest.param(raw({}, "\ud800"), "surrogate", id="half a character"),
        pytest.param(raw({"type": "string"}, 3), "'value': expected a string", id="schema"),
        pytest.param(raw({}, 1, lambda a, v: v.nope), "rendered", id="renderer raises"),
        pytest.param(raw({}, 1, lambda a, v: 5), "rendered", id="renderer gives no content"),
    ],
)
async def test_T59_invalid_output_is_told_with_its_cause(
    definition: ToolDefinition, cause: str
) -> None:
    async with tool_bench(definition) as bench:
        result = await bench.run("raw")
        assert code_of(result) == "INVALID_TOOL_OUTPUT"
        assert "'raw'" in text_of(result)
        assert cause in text_of(result)


async def test_T60_a_foreign_success_is_rebuilt_from_its_value() -> None:
    async with tool_bench(echo) as bench:
        note = create_user_message("kept")

        async def forge(
            event: ToolsExecute,
            next_: Next[ToolExecutionResult],
        ) -> ToolExecutionResult:
            return ToolSuccess(
                value="new",
                content=(TextBlock("ignored"),),
                meta=1,
                concludes_turn=True,
                additional_contexts=(note,),
            )

        bench.ctx.on(ToolsExecute, forge)
        assert await bench.run("echo", text="x") == ToolSuccess(
            value="new", content=(TextBlock("new"),), additional_contexts=(note,)
        )


async def test_T61_T77_contexts_of_the_body_come_before_the_wrappers() -> None:
    async with tool_bench(remember) as bench:

        async def around(
            event: ToolsExecute,
            next_: Next[ToolExecutionResult],
        ) -> ToolExecutionResult:
            result = await next_()
            return msgspec.structs.replace(
                result, additional_contexts=(create_user_message("wrapper"),)
            )

        async def post(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
            return Accept(additional_contexts=(create_user_message("policy"),))

        bench.ctx.on(ToolsExecute, around)
        bench.ctx.on(ToolsPostExecute, post)
        result = await bench.run("remember", text="body")
        assert notes(result) == ["body", "wrapper", "policy"]


async def test_T78_conclude_turn_marks_successes_only() -> None:
    async with tool_bench(remember) as bench:
        concluded = await bench.run("remember", text="x", end=True)
        assert isinstance(concluded, ToolSuccess)
        assert concluded.concludes_turn
        plain = await bench.run("remember", text="x")
        assert isinstance(plain, ToolSuccess)
        assert not plain.concludes_turn


async def test_T62_a_raising_policy_skips_the_post_stage_and_a_raising_body_does_not() -> None:
    async with tool_bench(remember, fail) as bench:
        posts: list[str] = []

        async def post(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
            posts.append(event.exec.name)
            return await next_()

        async def broken(
            event: ToolsExecute,
            next_: Next[ToolExecutionResult],
        ) -> ToolExecutionResult:
            await next_()
            raise RuntimeError("wrapper broke")

        bench.ctx.on(ToolsPostExecute, post)
        assert text_of(await bench.run("fail", text="gone")) == "Error: gone"
        handle = bench.ctx.on(ToolsExecute, broken)
        result = await bench.run("remember", text="x")
        assert (text_of(result), notes(result)) == ("Error: wrapper broke", [])
        handle()
        bench.tools.guard(lambda run: 1 / 0)  # type: ignore[arg-type, return-value]  # what is tested
        assert "division" in text_of(await bench.run("remember", text="x"))
        assert posts == ["fail"]


async def test_T64_post_decisions_replace_content_or_value_never_both() -> None:
    async with tool_bench(echo, fail) as bench:
        decision: PostToolDecision = Accept()

        async def post(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
            return decision

        bench.ctx.on(ToolsPostExecute, post)
        decision = Accept(content="short")
        assert await bench.run("echo", text="x") == ToolSuccess(
            value="x", content=(TextBlock("short"),)
        )
        failed = await bench.run("fail", text="x")
        assert (failed.is_error, text_of(failed)) == (True, "short")
        decision = Accept(value="y")
        assert await bench.run("echo", text="x") == ToolSuccess(
            value="y", content=(TextBlock("y"),)
        )
        assert "a failure has none" in text_of(await bench.run("fail", text="x"))
        decision = Accept(value=None)
        assert code_of(await bench.run("echo", text="x")) == "INVALID_TOOL_OUTPUT"
        decision = Accept(content="a", value="b")
        assert "both" in text_of(await bench.run("echo", text="x"))


async def test_T65_a_block_leaves_the_feedback_and_its_own_contexts_only() -> None:
    async with tool_bench(remember) as bench:

        async def post(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
            return Block("no secrets", (create_user_message("policy"),))

        bench.ctx.on(ToolsPostExecute, post)
        result = await bench.run("remember", text="x", end=True)
        assert isinstance(result, ToolFailure)
        assert (result.error.message, text_of(result)) == ("no secrets", "no secrets")
        assert notes(result) == ["policy"]


async def test_T67_T125_projection_and_finalizer_have_their_say() -> None:
    calls: list[str] = []

    def project(run: ToolRunContext, result: ToolExecutionResult) -> str:
        calls.append("project")
        return "projected"

    def finalize(run: ToolRunContext, result: ToolExecutionResult) -> str:
        calls.append(f"finalize {text_of(result)}")
        return "final"

    made = tool(name="made", project_content=project, finalize_content=finalize)(echo.function)
    async with tool_bench(made) as bench:
        assert text_of(await bench.run("made", text="x")) == "final"
        assert calls == ["project", "finalize projected"]
        bad = await bench.run("made", text=float("nan"))
        assert text_of(bad) == "final"
        assert calls[2:] == [f"finalize {calls[2][9:]}"]

    def broken(run: ToolRunContext, result: ToolExecutionResult) -> str:
        calls.append("broken")
        raise RuntimeError("finalizer broke")

    calls.clear()
    unlucky = tool(name="unlucky", finalize_content=broken)(remember.function)
    async with tool_bench(unlucky) as bench:
        result = await bench.run("unlucky", text="x", end=True)
        assert (text_of(result), notes(result)) == ("Error: finalizer broke", [])
        assert calls == ["broken"]


async def test_T50_T122_a_replaced_tool_does_not_change_a_running_call() -> None:
    started, go_on = anyio.Event(), anyio.Event()

    @tool(finalize_content=lambda run, result: "old finalizer")
    async def slow() -> str:
        """Wait."""
        started.set()
        await go_on.wait()
        return "old"

    results: list[ToolExecutionResult] = []
    async with tool_bench() as bench:
        handle = bench.tools.register(slow)

        async def call() -> None:
            results.append(await bench.run("slow"))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await started.wait()
                handle()
                bench.tools.register(tool(name="slow")(echo.function))
                go_on.set()
    assert text_of(results[0]) == "old finalizer"


async def test_T73_messages_of_exceptions_are_never_empty() -> None:
    class UnprintableError(Exception):
        def __str__(self) -> str:  # type: ignore[explicit-override]  # what is tested
            raise RuntimeError

    class KnownError(HarnessError):
        pass

    raising: list[Exception] = []

    @tool
    async def throw() -> str:
        """Raise."""
        raise raising.pop()

    async with tool_bench(throw) as bench:
        for error, text, code in (
            (KeyError(), "Error: KeyError", None),
            (UnprintableError(), "Error: an error without a readable message", None),
            (ExceptionGroup("g", [ValueError("inner")]), "Error: inner", None),
            (ExceptionGroup("both", [ValueError("a"), ValueError("b")]), "Error: both", None),
            (KnownError("m", "MY_CODE"), "Error: m", "MY_CODE"),
        ):
            raising.append(error)
            result = await bench.run("throw")
            assert (text_of(result), code_of(result)) == (text, code)


async def test_T76_meta_is_for_direct_calls_only() -> None:
    shown = tool(name="shown", presentation_meta=lambda arguments, value: {"n": len(value)})(
        echo.function
    )
    tokens = []

    @tool
    async def outer(run: ToolRunContext) -> str:
        """Call another."""
        tokens.append(run.token)
        return "x"

    async with tool_bench(shown, outer) as bench:
        direct = await bench.run("shown", text="abc")
        assert isinstance(direct, ToolSuccess)
        assert direct.meta == {"n": 3}
        await bench.run("outer")
        nested = await bench.tools.execute(bench.call("shown", {"text": "abc"}, parent=tokens[0]))
        assert isinstance(nested, ToolSuccess)
        assert nested.meta is msgspec.UNSET


async def test_T68_observers_are_contained_and_the_record_is_frozen() -> None:
    async with tool_bench(echo) as bench:
        kept: list[ToolRunContext] = []

        def broken(event: ToolsResult) -> None:
            raise RuntimeError("observer")

        bench.ctx.on(ToolsResult, broken)
        bench.ctx.on(ToolsResult, lambda event: kept.append(event.exec))
        await bench.run("echo", text="x")
        with pytest.raises(HarnessError, match="frozen"):
            kept[0].defer_context(create_user_message("late"))
        with pytest.raises(HarnessError, match="frozen"):
            kept[0].signal = AbortController().signal


async def test_answers_of_the_wrong_kind_fail_the_call_and_say_what_to_answer() -> None:
    async with tool_bench(echo) as bench:

        async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            return True  # type: ignore[return-value]  # what is tested

        handle = bench.ctx.on(ToolsPreExecute, pre)
        assert "answer Allow()" in text_of(await bench.run("echo", text="x"))
        handle()

        async def post(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
            return Allow()  # type: ignore[return-value]  # what is tested

        bench.ctx.on(ToolsPostExecute, post)
        assert "answer Accept()" in text_of(await bench.run("echo", text="x"))


def test_texts_for_the_model_change_on_purpose_only() -> None:
    everything = "\n".join(
        f"{name}={text}" for name, text in sorted(vars(texts).items()) if name.isupper()
    )
    assert hashlib.sha256(everything.encode()).hexdigest() == TEXTS_DIGEST


TEXTS_DIGEST = "a2f52e9fa30eba018c2e675ee0d8ff636d09a63eaeb4de68ad42efd8f0eda903"


async def test_T58_the_tool_is_looked_up_when_its_body_is_due() -> None:
    @tool
    async def work() -> str:
        """Work."""
        return "old"

    @tool(name="work")
    async def newer() -> str:
        """Work anew."""
        return "new"

    async with tool_bench() as bench:
        handles = [bench.tools.register(work)]

        async def swap(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            handles.pop()()
            if not bench.tools.names():
                handles.append(bench.tools.register(newer))
            return await next_()

        bench.ctx.on(ToolsPreExecute, swap)
        assert text_of(await bench.run("work")) == "new"
        prepared = await bench.tools.scheduler.prepare(bench.call("work", {}))
        handles.pop()()
        result = await bench.tools.scheduler.dispatch(prepared.exec)
        assert code_of(result) == "UNKNOWN_TOOL"


async def test_T125_contexts_that_a_projector_defers_are_kept() -> None:
    note = create_user_message("seen")

    def project(run: ToolRunContext, result: ToolExecutionResult) -> None:
        run.defer_context(note)

    @tool(project_content=project)
    async def work() -> str:
        """Work."""
        return "done"

    async with tool_bench(work) as bench:
        result = await bench.run("work")
        assert result.additional_contexts == (note,)
