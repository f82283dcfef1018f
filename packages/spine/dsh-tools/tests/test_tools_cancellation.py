"""What abort, cancellation and abandonment do to a call."""

import gc
import threading
from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.lowlevel import checkpoint
from typing_extensions import override

from dsh_cordis import Next
from dsh_llm import AbortController, create_user_message, fuse_signals
from dsh_tools import (
    CancelMode,
    PostToolDecision,
    PreToolDecision,
    ToolExecutionResult,
    ToolFailure,
    ToolRunContext,
    ToolsExecute,
    ToolsPostExecute,
    ToolsPreExecute,
    ToolsResult,
    ToolSuccess,
    tool,
)
from dsh_tools.testing import RecordingCensus, ToolBench, code_of, text_of, tool_bench


class Stage:
    """What tests and bodies tell each other."""

    def __init__(self) -> None:
        self.started = anyio.Event()
        self.go_on = anyio.Event()
        self.log: list[str] = []


async def outcome(
    bench: ToolBench, name: str, controller: AbortController, meanwhile: Callable[[], None]
) -> ToolExecutionResult:
    """Run a tool and do something once the event loop has nothing else to do."""
    results: list[ToolExecutionResult] = []

    async def call() -> None:
        results.append(await bench.tools.execute(bench.call(name, {}, signal=controller.signal)))

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await anyio.wait_all_tasks_blocked()
            meanwhile()
    return results[0]


async def test_T81_aborted_before_the_body_nothing_runs() -> None:
    ran: list[int] = []

    @tool
    async def work() -> str:
        """Work."""
        ran.append(1)
        return ""

    async with tool_bench(work) as bench:
        published: list[object] = []
        bench.ctx.on(ToolsResult, lambda event: published.append(event.result))
        controller = AbortController()
        controller.abort()
        result = await bench.tools.execute(bench.call("work", {}, signal=controller.signal))
        assert code_of(result) == "ABORTED_BEFORE_DISPATCH"
        assert isinstance(result, ToolFailure)
        assert result.error.info is not None
        assert result.error.info.name == "AbortError"
        assert (ran, published) == ([], [result])


async def test_T83_a_scoped_body_is_cancelled_and_its_cleanup_awaited() -> None:
    stage = Stage()

    @tool
    async def work(run: ToolRunContext) -> str:
        """Work."""
        run.defer_context(create_user_message("kept"))
        try:
            await stage.go_on.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await checkpoint()
                stage.log.append("cleaned up")
        return "never"

    async with tool_bench(work) as bench:
        controller = AbortController()
        result = await outcome(bench, "work", controller, controller.abort)
        assert code_of(result) == "ABORTED"
        assert stage.log == ["cleaned up"]
        assert len(result.additional_contexts) == 1


async def test_T69_T83_an_error_while_cleaning_up_is_the_result() -> None:
    stage = Stage()

    @tool
    async def work() -> str:
        """Work."""
        try:
            await stage.go_on.wait()
        finally:
            raise OSError("disk full")

    async with tool_bench(work) as bench:
        controller = AbortController()
        result = await outcome(bench, "work", controller, controller.abort)
        assert (text_of(result), code_of(result)) == ("Error: disk full", None)


async def test_T83_work_finished_in_a_shield_is_still_an_abort() -> None:
    stage = Stage()

    @tool
    async def work() -> str:
        """Work."""
        with anyio.CancelScope(shield=True):
            await stage.go_on.wait()
        stage.log.append("finished")
        return "done"

    async with tool_bench(work) as bench:
        controller = AbortController()

        def meanwhile() -> None:
            controller.abort()
            stage.go_on.set()

        result = await outcome(bench, "work", controller, meanwhile)
        assert (code_of(result), stage.log) == ("ABORTED", ["finished"])


async def test_T84_a_cooperative_body_watches_its_signal() -> None:
    stage = Stage()

    @tool(cancel="cooperative")
    async def work(run: ToolRunContext) -> str:
        """Work."""
        await run.signal.wait()
        await checkpoint()
        stage.log.append(str(run.signal.reason))
        return "settled"

    async with tool_bench(work) as bench:
        controller = AbortController()
        result = await outcome(bench, "work", controller, lambda: controller.abort("enough"))
        assert (code_of(result), stage.log) == ("ABORTED", ["enough"])


async def test_T87_listeners_are_not_cancelled_by_an_abort() -> None:
    stage = Stage()

    @tool
    async def work() -> str:
        """Work."""
        await stage.go_on.wait()
        return ""

    async with tool_bench(work) as bench:

        async def post(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
            await checkpoint()
            stage.log.append(f"post {event.exec.signal.aborted}")
            return await next_()

        bench.ctx.on(ToolsPostExecute, post)
        controller = AbortController()
        await outcome(bench, "work", controller, controller.abort)
        assert stage.log == ["post True"]


async def test_T58_T82_a_wrappers_deadline_reads_as_cancellation_inside() -> None:
    stage = Stage()

    @tool
    async def work(run: ToolRunContext) -> str:
        """Work."""
        stage.log.append(f"{run.signal.aborted}")
        await stage.go_on.wait()
        return ""

    deadline = AbortController()

    async with tool_bench(work) as bench:

        async def limit(
            event: ToolsExecute, next_: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            upstream = event.exec.signal
            fused, detach = fuse_signals(upstream, deadline.signal)
            event.exec.signal = fused.signal
            try:
                return await next_()
            finally:
                event.exec.signal = upstream
                detach()

        bench.ctx.on(ToolsExecute, limit)
        result = await outcome(bench, "work", AbortController(), deadline.abort)
        assert (code_of(result), stage.log) == ("ABORTED", ["False"])
        again = await bench.run("work")
        assert code_of(again) == "ABORTED_BEFORE_DISPATCH"


async def test_T58_a_success_under_an_aborted_deadline_is_an_abort() -> None:
    deadline = AbortController()

    @tool(cancel="cooperative")
    async def work(run: ToolRunContext) -> str:
        """Work too long."""
        deadline.abort()
        return f"{run.signal.aborted}"

    async with tool_bench(work) as bench:

        async def limit(
            event: ToolsExecute, next_: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            upstream, event.exec.signal = event.exec.signal, deadline.signal
            try:
                return await next_()
            finally:
                event.exec.signal = upstream

        bench.ctx.on(ToolsExecute, limit)
        assert code_of(await bench.run("work")) == "ABORTED"


async def test_T88_native_cancellation_propagates_and_publishes_nothing() -> None:
    stage = Stage()

    @tool
    async def work() -> str:
        """Work."""
        stage.started.set()
        try:
            await stage.go_on.wait()
        finally:
            stage.log.append("left")
        return ""

    async with tool_bench(work) as bench:

        async def post(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
            stage.log.append("post")
            return await next_()

        bench.ctx.on(ToolsPostExecute, post)
        bench.ctx.on(ToolsResult, lambda event: stage.log.append("result"))
        results: list[ToolExecutionResult] = []

        async def call() -> None:
            results.append(await bench.run("work"))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await stage.started.wait()
                tasks.cancel_scope.cancel()
        assert (results, stage.log) == ([], ["left"])


async def test_T74_a_stray_cancellation_is_the_bodys_own_failure() -> None:
    @tool
    async def work() -> str:
        """Keep a cancellation and let it out later."""
        kept: list[BaseException] = []
        with anyio.CancelScope() as scope:
            scope.cancel()
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class() as error:
                kept.append(error)
                raise
        raise kept[0]

    async with tool_bench(work) as bench:
        with anyio.fail_after(5):
            result = await bench.run("work")
        assert text_of(result) in {"Error: CancelledError", "Error: Cancelled"}
        assert code_of(result) is None


async def a_cancellation() -> BaseException:
    """A cancellation exception, caught where it was asked for."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class() as error:
            kept: BaseException = error
            return kept
    raise AssertionError("not cancelled")


async def test_T74_a_body_that_never_waits_cannot_have_been_cancelled() -> None:
    kept = await a_cancellation()

    @tool
    async def odd() -> str:
        """Raise a cancellation that somebody else got."""
        raise kept

    async with tool_bench(odd) as bench:
        result = await bench.run("odd")
        assert text_of(result) in {"Error: CancelledError", "Error: Cancelled"}


async def test_T74_a_guard_cannot_have_been_cancelled_either() -> None:
    kept = await a_cancellation()

    @tool
    async def work() -> str:
        """Work."""
        return "done"

    def odd(run: ToolRunContext) -> str | None:
        raise kept

    async with tool_bench(work) as bench:
        judged: list[object] = []

        def judge(
            event: ToolsPostExecute, next_: Next[PostToolDecision]
        ) -> Awaitable[PostToolDecision]:
            judged.append(event)
            return next_()

        bench.ctx.on(ToolsPostExecute, judge)
        bench.tools.guard(odd)
        result = await bench.run("work")
        assert text_of(result) in {"Error: CancelledError", "Error: Cancelled"}
        assert judged == []


@pytest.mark.parametrize("stage", [ToolsPreExecute, ToolsExecute, ToolsPostExecute])
async def test_T74_a_listener_that_never_waits_cannot_have_been_cancelled(
    stage: type[ToolsPreExecute] | type[ToolsExecute] | type[ToolsPostExecute],
) -> None:
    kept = await a_cancellation()

    @tool
    async def work() -> str:
        """Work."""
        return "done"

    def odd(event: object, next_: object) -> object:
        raise kept

    async with tool_bench(work) as bench:
        bench.ctx.on(stage, odd)  # type: ignore[misc]  # no coroutine function, on purpose
        result = await bench.run("work")
        assert text_of(result) in {"Error: CancelledError", "Error: Cancelled"}


@pytest.mark.parametrize("stage", [ToolsPreExecute, ToolsExecute, ToolsPostExecute])
async def test_T88_a_stage_that_is_cancelled_before_it_begins_leaves_nothing(
    stage: type[ToolsPreExecute] | type[ToolsExecute] | type[ToolsPostExecute],
) -> None:
    @tool
    async def work() -> str:
        """Work."""
        scope.cancel()
        return "done"

    async def listener(event: object, next_: Callable[[], Awaitable[object]]) -> object:
        return await next_()

    async with tool_bench(work) as bench:
        bench.ctx.on(stage, listener)  # type: ignore[misc]  # one listener for all three
        with anyio.CancelScope() as scope:
            if stage is not ToolsPostExecute:
                scope.cancel()
            await bench.run("work")
        gc.collect()  # a coroutine that was never awaited would say so here


async def test_T130_a_signal_that_is_asked_for_late_is_abandoned_too() -> None:
    @tool
    async def work() -> str:
        """Work."""
        return "done"

    async with tool_bench(work) as bench:
        prepared = await bench.tools.scheduler.prepare(bench.call("work", {}))
        bench.tools.scheduler.abandon(prepared.exec)
        assert prepared.exec.signal.abandoned
        nested = bench.call("work", {}, signal=prepared.exec.signal)
        assert code_of(await bench.tools.execute(nested)) == "ABORTED_BEFORE_DISPATCH"


async def test_T80_a_signal_that_is_asked_for_after_the_end_holds_no_observer() -> None:
    records: list[ToolRunContext] = []
    caller = AbortController()

    @tool
    async def work(run: ToolRunContext) -> str:
        """Work."""
        records.append(run)
        return "done"

    async with tool_bench(work) as bench:
        await bench.tools.execute(bench.call("work", {}, signal=caller.signal))
        late = records[0].signal
        caller.abort("later")
        assert not late.aborted


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
async def test_T74_exits_of_the_process_pass(error: type[BaseException]) -> None:
    @tool
    async def leave() -> str:
        """Leave."""
        raise error

    async with tool_bench(leave) as bench:
        with pytest.raises(error):
            await bench.run("leave")


def take_part(bench: ToolBench) -> None:
    """Listen to every stage, and change nothing."""

    async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
        return await next_()

    async def around(event: ToolsExecute, next_: Next[ToolExecutionResult]) -> ToolExecutionResult:
        return await next_()

    async def post(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
        return await next_()

    bench.ctx.on(ToolsPreExecute, pre)
    bench.ctx.on(ToolsExecute, around)
    bench.ctx.on(ToolsPostExecute, post)


async def test_T128_a_stage_without_anybody_is_no_entry() -> None:
    @tool
    async def quick(run: ToolRunContext) -> str:
        """Is quick."""
        kinds.extend(entry.kind for entry in census.running)
        return "done"

    kinds: list[str] = []
    async with tool_bench(quick) as bench:
        with RecordingCensus().installed() as census:
            await bench.run("quick")
        assert kinds == census.kinds == ["tool-body"]
        assert census.running == []


async def test_T42_T128_threads_are_accounted_for_and_see_context_and_signal() -> None:
    names: list[str] = []

    @tool(thread=True)
    def work(run: ToolRunContext) -> str:
        """Work."""
        names.append(threading.current_thread().name)
        run.defer_context(create_user_message("from a thread"))
        return "done"

    async with tool_bench(work) as bench:
        take_part(bench)
        with RecordingCensus().installed() as census, anyio.fail_after(5):
            result = await bench.run("work")
        assert isinstance(result, ToolSuccess)
        assert len(result.additional_contexts) == 1
        assert names[0] != threading.main_thread().name
        assert census.kinds == [
            "tool-gate",
            "tool-wrapper",
            "tool-body",
            "tool-thread",
            "tool-post",
        ]
        assert census.running == []


async def test_T42_a_thread_is_waited_for_through_cancellation() -> None:
    release = threading.Event()
    ended: list[bool] = []

    @tool(thread=True)
    def work(run: ToolRunContext) -> str:
        """Block."""
        ended.append(release.wait(5))
        return "late"

    async with tool_bench(work) as bench:
        controller = AbortController()

        def meanwhile() -> None:
            controller.abort()
            release.set()

        result = await outcome(bench, "work", controller, meanwhile)
        assert (code_of(result), ended) == ("ABORTED", [True])


async def test_T130_an_abandoned_thread_is_left_alone_but_stays_in_the_census() -> None:
    begun, release = threading.Event(), threading.Event()

    @tool(thread=True)
    def work(run: ToolRunContext) -> str:
        """Block."""
        begun.set()
        release.wait(5)
        run.defer_context(create_user_message("too late"))
        return "late"

    async with tool_bench(work) as bench:
        seen: list[str] = []
        bench.ctx.on(ToolsResult, lambda event: seen.append("result"))
        with RecordingCensus().installed() as census, anyio.fail_after(5):
            prepared = await bench.tools.scheduler.prepare(bench.call("work", {}))
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(bench.tools.scheduler.dispatch, prepared.exec)
                while not begun.is_set():
                    await checkpoint()
                bench.tools.scheduler.abandon(prepared.exec)
            assert prepared.exec.signal.abandoned
            assert [entry.kind for entry in census.running] == ["tool-thread"]
            release.set()
            while census.running:
                await checkpoint()
        assert (seen, prepared.exec._contexts) == ([], [])


async def test_T130_a_thread_that_has_not_begun_never_does() -> None:
    ran: list[int] = []

    @tool(thread=True)
    def work() -> str:
        """Work."""
        ran.append(1)
        return ""

    async with tool_bench(work) as bench:
        scheduler = bench.tools.scheduler
        prepared = await scheduler.prepare(bench.call("work", {}))

        class Impatient(RecordingCensus):
            @override
            def enter(self, kind: str, label: str, **rest: object) -> Callable[[], None]:
                if kind == "tool-thread":
                    scheduler.abandon(prepared.exec)
                return super().enter(kind, label)

        with Impatient().installed() as census, anyio.fail_after(5):
            await scheduler.dispatch(prepared.exec)
            while census.running:
                await checkpoint()
        assert ran == []


async def test_T130_what_is_called_under_an_abandoned_signal_does_nothing() -> None:
    stage = Stage()
    answers: list[ToolExecutionResult] = []

    @tool
    async def inner() -> str:
        """Be called."""
        stage.log.append("inner")
        return ""

    async with tool_bench(inner) as bench:

        @tool
        async def outer(run: ToolRunContext) -> str:
            """Call."""
            stage.started.set()
            with anyio.CancelScope(shield=True):
                await stage.go_on.wait()
                call = bench.call("inner", {}, signal=run.signal)
                answers.append(await bench.tools.execute(call))
            return ""

        bench.tools.register(outer)
        bench.tools.guard(lambda run: stage.log.append(run.name))
        bench.ctx.on(ToolsResult, lambda event: stage.log.append("result"))
        scheduler = bench.tools.scheduler
        prepared = await scheduler.prepare(bench.call("outer", {}))
        results: list[ToolExecutionResult] = []

        async def dispatch() -> None:
            results.append(await scheduler.dispatch(prepared.exec))

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(dispatch)
                await stage.started.wait()
                scheduler.abandon(prepared.exec)
                stage.go_on.set()
        await scheduler.finalize(prepared.exec, results[0])
        assert [code_of(answer) for answer in answers] == ["ABORTED_BEFORE_DISPATCH"]
        assert stage.log == ["outer"]


async def test_T130_the_second_latch_of_a_turn_abandons_no_execution() -> None:
    @tool
    async def work(run: ToolRunContext) -> str:
        """Work."""
        return str(run.signal.abandoned)

    async with tool_bench(work) as bench:
        controller = AbortController()
        controller.abandon()
        result = await bench.tools.execute(bench.call("work", {}, signal=controller.signal))
        assert text_of(result) == "False"


async def test_T128_a_frame_can_be_cancelled_through_the_census() -> None:
    stage = Stage()

    @tool(cancel="cooperative")
    async def work() -> str:
        """Ignore everything."""
        await stage.go_on.wait()
        return ""

    async with tool_bench(work) as bench:
        bench.ctx.on(ToolsResult, lambda event: stage.log.append("result"))
        with RecordingCensus().installed() as census:

            def meanwhile() -> None:
                (cancel,) = [each.cancel for each in census.running if each.kind == "tool-body"]
                assert cancel is not None
                cancel()

            result = await outcome(bench, "work", AbortController(), meanwhile)
        assert (code_of(result), stage.log, census.running) == ("ABORTED", [], [])


@pytest.mark.parametrize(
    ("stage", "kind"),
    [
        (ToolsPreExecute, "tool-gate"),
        (ToolsExecute, "tool-wrapper"),
        (ToolsPostExecute, "tool-post"),
    ],
)
async def test_T88_T128_a_policy_cancelled_through_the_census_ends_its_call_in_silence(
    stage: type[ToolsPreExecute] | type[ToolsExecute] | type[ToolsPostExecute], kind: str
) -> None:
    @tool
    async def work() -> str:
        """Work."""
        return "done"

    async def stuck(event: object, next_: object) -> None:
        await anyio.sleep_forever()

    async with tool_bench(work) as bench:
        published: list[object] = []
        bench.ctx.on(ToolsResult, published.append)
        bench.ctx.on(stage, stuck)  # type: ignore[misc]  # a class out of three
        with RecordingCensus().installed() as census:

            def meanwhile() -> None:
                (entry,) = census.running
                assert entry.kind == kind
                assert entry.cancel is not None
                entry.cancel()

            result = await outcome(bench, "work", AbortController(), meanwhile)
        started = stage is ToolsPostExecute
        assert code_of(result) == ("ABORTED" if started else "ABORTED_BEFORE_DISPATCH")
        assert (published, census.running) == ([], [])


@pytest.mark.parametrize("mode", ["scope", "cooperative"])
@pytest.mark.parametrize("native", [False, True])
async def test_T70_T85_a_call_is_not_over_while_its_body_runs(
    mode: CancelMode, native: bool
) -> None:
    stage = Stage()

    @tool(cancel=mode)
    async def work() -> str:
        """Clean up slowly."""
        try:
            stage.started.set()
            await stage.go_on.wait()
        finally:
            with anyio.CancelScope(shield=True):
                await stage.go_on.wait()
                await checkpoint()
            stage.log.append("cleaned up")
        return "done"

    async with tool_bench(work) as bench:
        controller = AbortController()

        async def call() -> None:
            try:
                await bench.tools.execute(bench.call("work", {}, signal=controller.signal))
            finally:
                stage.log.append("over")

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await stage.started.wait()
                controller.abort()
                if native:
                    tasks.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await anyio.wait_all_tasks_blocked()
                    assert stage.log == []
                    stage.go_on.set()
        assert stage.log == ["cleaned up", "over"]


async def dispatched_alone(bench: ToolBench, name: str, controller: AbortController) -> str:
    """The code, or else the text, of a body that runs in the task of its caller."""
    scheduler = bench.tools.scheduler
    prepared = await scheduler.prepare(bench.call(name, {}, signal=controller.signal))
    return_value = await scheduler.dispatching(prepared.exec).alone()
    return code_of(return_value) or text_of(return_value)


async def test_T132_a_stage_in_a_task_for_itself_starts_no_other() -> None:
    tasks: list[int] = []

    async def note() -> None:
        await checkpoint()
        tasks.append(anyio.get_current_task().id)

    @tool
    async def work() -> str:
        """Work."""
        await note()
        return "done"

    async def ask(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
        await note()
        return await next_()

    async def judge(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
        await note()
        return await next_()

    async with tool_bench(work) as bench:
        bench.ctx.on(ToolsPreExecute, ask)
        bench.ctx.on(ToolsPostExecute, judge)
        scheduler = bench.tools.scheduler
        prepared = await scheduler.preparing(bench.call("work", {})).alone()
        result = await scheduler.dispatching(prepared.exec).alone()
        assert text_of(await scheduler.finalizing(prepared.exec, result).alone()) == "done"
        assert tasks == [anyio.get_current_task().id] * 3
        await bench.run("work")
        assert anyio.get_current_task().id not in tasks[3:]


async def test_T133_the_body_in_a_wrapper_has_a_task_of_its_own_all_the_same() -> None:
    tasks: list[int] = []

    @tool
    async def work() -> str:
        """Work."""
        await checkpoint()
        tasks.append(anyio.get_current_task().id)
        return "done"

    async def around(event: ToolsExecute, next_: Next[ToolExecutionResult]) -> ToolExecutionResult:
        tasks.append(anyio.get_current_task().id)
        return await next_()

    async with tool_bench(work) as bench:
        bench.ctx.on(ToolsExecute, around)
        assert await dispatched_alone(bench, "work", AbortController()) == "done"
        wrapper, body = tasks
        assert wrapper == anyio.get_current_task().id != body


async def test_T74_a_stray_cancellation_is_told_from_another_in_the_callers_task() -> None:
    kept = await a_cancellation()

    @tool
    async def work() -> str:
        """Raise a cancellation that somebody else got."""
        await checkpoint()
        raise kept

    async with tool_bench(work) as bench:
        text = await dispatched_alone(bench, "work", AbortController())
        assert text in {"Error: CancelledError", "Error: Cancelled"}


@pytest.mark.parametrize("by", ["abort", "census", "caller"])
async def test_T83_T88_T128_a_body_in_the_callers_task_is_cancelled_as_any_other(by: str) -> None:
    stage = Stage()

    @tool
    async def work() -> str:
        """Wait, and clean up."""
        try:
            stage.started.set()
            await anyio.sleep_forever()
        finally:
            stage.log.append("left")
        return ""

    async with tool_bench(work) as bench:
        controller = AbortController()

        async def call() -> None:
            stage.log.append(await dispatched_alone(bench, "work", controller))

        with anyio.fail_after(5), RecordingCensus().installed() as census:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await stage.started.wait()
                if by == "abort":
                    controller.abort()
                elif by == "caller":
                    tasks.cancel_scope.cancel()
                else:
                    (cancel,) = [each.cancel for each in census.running]
                    assert cancel is not None
                    cancel()
        assert stage.log == (["left"] if by == "caller" else ["left", "ABORTED"])
        assert census.running == []
