"""Rules of the tool layer that show only where the loop schedules, logs and sends."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
import structlog.testing
from typing_extensions import override

from dsh_agent import AgentError
from dsh_agent_loop.testing import (
    LoopStack,
    ManualClock,
    ScriptedModel,
    Step,
    call,
    log_problems,
    loop_stack,
    say,
)
from dsh_brand import decode_json, encode
from dsh_cordis import Next, task_census
from dsh_llm import (
    AbortSignal,
    CallId,
    LlmResolvedModelInfo,
    create_user_message,
    message_text,
)
from dsh_session import (
    RequestHeaderEvent,
    Session,
    SessionEvent,
    StepEnd,
    SystemMessageEvent,
    ToolCallEvent,
    ToolErrorInfo,
    ToolResultEvent,
    decode_stored_event,
    encode_event,
    event_to_json,
)
from dsh_tools import (
    Block,
    Deny,
    PostToolDecision,
    PreToolDecision,
    ToolExecutionInput,
    ToolExecutionResult,
    ToolRunContext,
    ToolsExecute,
    ToolsPostExecute,
    ToolsPreExecute,
    ToolsResult,
    tool,
)
from dsh_tools.testing import code_of

Body = Callable[[ToolRunContext], Awaitable[str]]


def add(
    stack: LoopStack, name: str, body: Body, *, parallel: Callable[[object], bool] | bool = False
) -> None:
    """Register a tool without parameters that watches its signal itself."""

    @tool(name=name, description=name, cancel="cooperative", concurrency_safe=parallel)
    async def run(run: ToolRunContext) -> str:
        return await body(run)

    stack.ctx.tools.register(run)


async def echo(run: ToolRunContext) -> str:
    return f"ran {run.call_id}"


def calls(*ids: str, name: str = "t") -> list[Step]:
    return call(*((each, name, "") for each in ids))


def results(stack: LoopStack) -> list[tuple[str | None, str | None]]:
    """Call id and code of each result in the log."""
    return [
        (data.message.tool_call_id, data.error.code if data.error else None)
        for data in resulted(stack)
    ]


def resulted(stack: LoopStack) -> list[ToolResultEvent]:
    events = stack.agent.session.events
    return [event.data for event in events if isinstance(event.data, ToolResultEvent)]


async def quiet() -> None:
    """Return when everything waits for something.

    On asyncio `wait_all_tasks_blocked` does not see what waits for the callback of an ended task.
    """
    for _ in range(50):
        await anyio.lowlevel.checkpoint()
    await anyio.wait_all_tasks_blocked()


class Bodies:
    """Bodies that begin, and end when told."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._go: dict[str, anyio.Event] = {}

    def end(self, *ids: str) -> None:
        for each in ids:
            self._of(each).set()

    async def body(self, run: ToolRunContext) -> str:
        self.begun.append(run.call_id)
        await self._of(run.call_id).wait()
        return "ok"

    def _of(self, call_id: str) -> anyio.Event:
        return self._go.setdefault(call_id, anyio.Event())


@asynccontextmanager
async def turn(stack: LoopStack, bodies: Bodies, *all_ids: str) -> AsyncGenerator[None]:
    """A turn that is under way; in the end all bodies end."""
    stack.agent.followup("go")
    with anyio.fail_after(5):
        try:
            await quiet()
            yield
        finally:
            bodies.end(*all_ids)
            await stack.agent.when_idle()


# ---- order ----------------------------------------------------------------------------------


async def test_T93_the_pool_counts_running_bodies_only() -> None:
    ids = ("c1", "c2", "c3", "c4", "c5")
    settings = {"max_parallel_tool_calls": 2}
    async with loop_stack(calls(*ids), say("ok"), config=settings) as stack:
        bodies = Bodies()
        add(stack, "t", bodies.body, parallel=True)
        stack.ctx.tools.guard(lambda run: "no" if run.call_id == "c2" else None)
        async with turn(stack, bodies, *ids):
            assert bodies.begun == ["c1", "c3"]
            bodies.end("c3")
            await quiet()
            # The result of c3 waits for that of c1 and holds no slot.
            assert bodies.begun == ["c1", "c3", "c4"]
            assert results(stack) == []
        assert bodies.begun == ["c1", "c3", "c4", "c5"]
        assert [each for each, _ in results(stack)] == list(ids)


async def test_T93_by_default_ten_bodies_run_at_once() -> None:
    ids = [f"c{number}" for number in range(1, 13)]
    async with loop_stack(calls(*ids), say("ok")) as stack:
        bodies = Bodies()
        add(stack, "t", bodies.body, parallel=True)
        async with turn(stack, bodies, *ids):
            assert bodies.begun == ids[:10]
            bodies.end("c1")
            await quiet()
            assert bodies.begun == ids[:11]


async def test_T93_an_exclusive_call_waits_for_commits_and_holds_back_all_behind() -> None:
    reply = call(("c1", "p", ""), ("c2", "x", ""), ("c3", "p", ""))
    async with loop_stack(reply, say("ok")) as stack:
        bodies = Bodies()
        add(stack, "p", bodies.body, parallel=True)
        add(stack, "x", bodies.body)
        committed: list[list[tuple[str | None, str | None]]] = []

        async def around(
            event: ToolsExecute, next_: Next[ToolExecutionResult]
        ) -> ToolExecutionResult:
            committed.append(results(stack))
            return await next_()

        stack.ctx.on(ToolsExecute, around, everywhere=True)
        async with turn(stack, bodies, "c1", "c2", "c3"):
            assert bodies.begun == ["c1"]
            bodies.end("c1")
            await quiet()
            assert bodies.begun == ["c1", "c2"]
        assert committed == [[], [("c1", None)], [("c1", None), ("c2", None)]]


async def test_T93_the_mode_is_asked_again_after_the_commits_made_so_far() -> None:
    ids = ("c1", "c2", "c3")
    settings = {"max_parallel_tool_calls": 2}
    async with loop_stack(calls(*ids), say("ok"), config=settings) as stack:
        bodies = Bodies()
        add(stack, "t", bodies.body, parallel=lambda arguments: not results(stack))
        async with turn(stack, bodies, *ids):
            assert bodies.begun == ["c1", "c2"]
            bodies.end("c1")
            await quiet()
            assert results(stack) == [("c1", None)]
            # There is a slot, and the call has become an exclusive one.
            assert bodies.begun == ["c1", "c2"]
        assert bodies.begun == ["c1", "c2", "c3"]


async def test_T94_everything_but_the_bodies_happens_in_order_one_at_a_time() -> None:
    ids = ("c1", "c2", "c3")
    async with loop_stack(calls(*ids), say("ok")) as stack:
        bodies = Bodies()
        lines: list[str] = []

        async def body(run: ToolRunContext) -> str:
            run.defer_context(create_user_message(f"note {run.call_id}"))
            return await bodies.body(run)

        async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            lines.append(f"pre {event.exec.call_id} [")
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            lines.append("]")
            return await next_()

        async def post(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
            lines.append(f"post {event.exec.call_id} [")
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            lines.append("]")
            return await next_()

        add(stack, "t", body, parallel=True)
        stack.ctx.on(ToolsPreExecute, pre, everywhere=True)
        stack.ctx.on(ToolsPostExecute, post, everywhere=True)
        stack.ctx.on(
            ToolsResult, lambda event: lines.append(f"result {event.exec.call_id}"), everywhere=True
        )
        async with turn(stack, bodies, *ids):
            assert bodies.begun == list(ids)
            bodies.end("c3", "c2")
            await quiet()
            assert results(stack) == []
        expected = [line for each in ids for line in (f"pre {each} [", "]")]
        expected += [line for each in ids for line in (f"post {each} [", "]", f"result {each}")]
        assert lines == expected
        recorded = [
            line for line in stack.recorder.lines if line.startswith(("tool/result", "~inserted"))
        ]
        assert [line for line in recorded if "go" not in line] == [
            line for each in ids for line in (f"tool/result {each}", f"~inserted note {each}")
        ]


async def test_T95_a_call_is_logged_before_it_is_judged_and_its_result_names_it() -> None:
    async with loop_stack(calls("c1", "c1", "", "c2"), say("ok")) as stack:
        last: list[tuple[str, str]] = []

        async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            data = stack.agent.session.events[-1].data
            assert isinstance(data, ToolCallEvent)
            last.append((data.call_id, event.exec.call_id))
            return await next_()

        add(stack, "t", echo)
        stack.ctx.on(ToolsPreExecute, pre, everywhere=True)
        await stack.run("go")
        assert [logged == asked for logged, asked in last] == [True] * 4
        events = stack.agent.session.events
        named = {e.seq: e.data.call_id for e in events if isinstance(e.data, ToolCallEvent)}
        assert len(set(named.values())) == 4
        for event in events:
            if isinstance(event.data, ToolResultEvent):
                (source,) = event.source_event_seqs or ()
                assert named[source] == event.data.message.tool_call_id


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        pytest.param("", None, "{}", id="nothing"),
        pytest.param('{"a": 1', "INVALID_ARGS", "cut off at the end", id="cut off"),
        pytest.param('{"a": 1}}', "INVALID_ARGS", "char 8", id="trailing text"),
        pytest.param('{"a": NaN}', "INVALID_ARGS", "no JSON", id="NaN"),
        pytest.param('{"a": -Infinity}', "INVALID_ARGS", "no JSON", id="infinity"),
        pytest.param('{"a": "\n"}', "INVALID_ARGS", "no JSON", id="control character"),
        pytest.param("[" * 20_000, "INVALID_ARGS", "no JSON", id="nesting"),
        pytest.param('"text"', "INVALID_ARGS", "an object was expected", id="text"),
        pytest.param('{"a": 1e999}', None, "the arguments cannot be passed on", id="overflow"),
        pytest.param('{"a": "\\ud800"}', None, "cannot be passed on", id="half a character"),
    ],
)
async def test_T51_T96_what_the_model_wrote_is_read_and_never_guessed(
    text: str, code: str | None, says: str
) -> None:
    async with loop_stack(call(("c1", "t", text)), say("ok")) as stack:

        async def body(run: ToolRunContext) -> str:
            return json.dumps(run.arguments)

        add(stack, "t", body)
        await stack.run("go")
        assert results(stack) == [("c1", code)]
        answer = next(m for m in stack.model.requests[-1].messages if m.role == "tool")
        assert says in message_text(answer)
        assert len(message_text(answer)) < 400


# ---- abort, failure, abandonment ------------------------------------------------------------


async def test_T97_after_an_abort_each_call_has_its_answer_in_order() -> None:
    ids = ("c1", "c2", "c3", "c4", "c5")
    settings = {"max_parallel_tool_calls": 3}
    async with loop_stack(calls(*ids), say("ok"), config=settings) as stack:
        begun: list[str] = []

        async def body(run: ToolRunContext) -> str:
            begun.append(run.call_id)
            await run.signal.wait()
            if run.call_id == "c2":
                raise ValueError("the reason of its own")
            return "settled"

        add(stack, "t", body, parallel=True)
        stack.agent.followup("go")
        with anyio.fail_after(5):
            await quiet()
            stack.agent.cancel()
            await stack.agent.when_idle()
        assert begun == ["c1", "c2", "c3"]
        assert results(stack) == [
            ("c1", "ABORTED"),
            ("c2", None),
            ("c3", "ABORTED"),
            ("c4", "ABORTED_BEFORE_DISPATCH"),
            ("c5", "ABORTED_BEFORE_DISPATCH"),
        ]
        lines = [line.split()[:2] for line in stack.recorder.lines if line.startswith("tool/")]
        assert lines[-4:] == [[f"tool/{kind}", each] for each in ids[3:] for kind in KINDS]
        assert pairing_problems(stack.agent.session.events) == []


KINDS = ("call", "result")


class LateStage:
    """A stage that another function runs."""

    immediate = False

    def __init__(
        self, run: Callable[..., Awaitable[ToolExecutionResult]], *arguments: object
    ) -> None:
        self._run = run
        self._arguments = arguments

    def alone(self) -> "LateStage":
        return self

    def __await__(self) -> Generator[Any, None, ToolExecutionResult]:  # as any coroutine
        return self._run(*self._arguments).__await__()


async def test_T75_T98_a_failing_scheduler_answers_every_call_and_raises_its_first_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = ("c1", "c2", "c3", "c4")
    settings = {"max_parallel_tool_calls": 3}
    async with loop_stack(calls(*ids), say("ok"), config=settings) as stack:
        bodies = Bodies()
        undisturbed: list[bool] = []
        reported: list[str] = []
        scheduler = stack.ctx.tools.scheduler
        dispatching: Callable[..., Awaitable[ToolExecutionResult]] = scheduler.dispatching
        finalizing: Callable[..., Awaitable[ToolExecutionResult]] = scheduler.finalizing
        failed = anyio.Event()

        async def body(run: ToolRunContext) -> str:
            answer = await bodies.body(run)
            undisturbed.append(not run.signal.aborted)
            return answer

        async def broken_dispatch(run: ToolRunContext) -> ToolExecutionResult:
            if run.call_id == "c1":
                await failed.wait()
                raise RuntimeError("first")
            return await dispatching(run)

        async def broken_finalize(
            run: ToolRunContext, result: ToolExecutionResult
        ) -> ToolExecutionResult:
            if run.call_id == "c3":
                raise RuntimeError("second")
            return await finalizing(run, result)

        monkeypatch.setattr(scheduler, "dispatching", partial(LateStage, broken_dispatch))
        monkeypatch.setattr(scheduler, "finalizing", partial(LateStage, broken_finalize))
        stack.ctx.on(AgentError, lambda e: reported.append(str(e.error)), everywhere=True)
        add(stack, "t", body, parallel=True)
        with structlog.testing.capture_logs() as records:
            async with turn(stack, bodies, *ids):
                failed.set()
                await quiet()
                # Nothing is started in the slot that the failure left.
                assert bodies.begun == ["c2", "c3"]
        assert undisturbed == [True, True]
        assert [data.error for data in resulted(stack)] == [
            ToolErrorInfo(name="ToolOutcomeUnknownError", code="TOOL_OUTCOME_UNKNOWN"),
            None,
            ToolErrorInfo(name="ToolOutcomeUnknownError", code="TOOL_OUTCOME_UNKNOWN"),
            ToolErrorInfo(name="ToolNotStartedError", code="TOOL_NOT_STARTED"),
        ]
        assert len(reported) == 1
        assert "first" in reported[0]
        again = [each for each in records if each["event"] == "agent.scheduler_failed_again"]
        assert [str(each["exc_info"]) for each in again] == ["second"]
        assert pairing_problems(stack.agent.session.events) == []


async def test_T133_bodies_run_in_tasks_of_their_own_with_the_census_of_the_agent() -> None:
    ids = ("c1", "c2", "c3")
    async with loop_stack(calls(*ids), say("ok")) as stack:
        tasks: list[int] = []
        counted: list[bool] = []
        alive = anyio.Event()

        async def body(run: ToolRunContext) -> str:
            tasks.append(anyio.get_current_task().id)
            counted.append(task_census.get() is not None)
            if len(tasks) == 3:
                entries = stack.ctx.agent_loop.census(stack.agent)
                running = [each.call_id for each in entries if each.kind == "tool-body"]
                assert running == list(ids)
                alive.set()
            await alive.wait()
            if run.call_id == "c2":
                raise BaseExceptionGroup("both", [ValueError("a"), ValueError("b")])
            await quiet()
            return "ok"

        add(stack, "t", body, parallel=True)
        await stack.run("go")
        assert len(set(tasks)) == 3
        assert counted == [True] * 3
        assert results(stack) == [("c1", None), ("c2", None), ("c3", None)]
        errors = [data.message.is_error for data in resulted(stack)]
        assert errors == [False, True, False]


async def test_T133_T137_nothing_follows_from_an_abandoned_call_and_siblings_go_on() -> None:
    clock = ManualClock()
    released = anyio.Event()
    over = anyio.Event()
    seen: list[str] = []
    answers: list[ToolExecutionResult] = []
    stack_of = loop_stack(
        calls("c1", "c2"), say("ok"), before=lambda ctx: ctx.provide("clock", clock)
    )
    async with stack_of as stack, anyio.create_task_group() as tasks:

        async def pass_time() -> None:
            while True:
                await anyio.lowlevel.checkpoint()
                clock.advance(1)

        async def body(run: ToolRunContext) -> str:
            run.defer_context(create_user_message(f"note {run.call_id}"))
            if run.call_id == "c2":
                await run.signal.wait()
                raise ValueError("its own")
            with anyio.CancelScope(shield=True):
                await released.wait()
            run.defer_context(create_user_message("late"))
            run.conclude_turn()
            call_again = ToolExecutionInput("t", {}, CallId("nested"), run.signal, agent=run.agent)
            answers.append(await stack.ctx.tools.execute(call_again))
            over.set()
            return "late"

        async def watch(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
            seen.append(f"post {event.exec.call_id}")
            return await next_()

        add(stack, "t", body, parallel=True)
        stack.ctx.on(ToolsPostExecute, watch, everywhere=True)
        stack.ctx.on(
            ToolsResult, lambda event: seen.append(f"result {event.exec.call_id}"), everywhere=True
        )
        stack.agent.followup("go")
        try:
            with anyio.fail_after(5):
                await quiet()
                stack.agent.cancel()
                tasks.start_soon(pass_time)
                with structlog.testing.capture_logs():
                    await stack.agent.when_idle()
            alive = stack.ctx.agent_loop.census(stack.agent)
            assert {each.call_id for each in alive} == {"c1"}
            assert all(each.abandoned for each in alive)
            assert results(stack) == [("c1", "TOOL_OUTCOME_UNKNOWN"), ("c2", None)]
            assert seen == ["post c2", "result c2"]
            before = len(stack.agent.session.events)
        finally:
            released.set()
        with anyio.fail_after(5):
            await over.wait()
            while stack.ctx.agent_loop.census(stack.agent):
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
        assert seen == ["post c2", "result c2"]
        assert [code_of(answer) for answer in answers] == ["ABORTED_BEFORE_DISPATCH"]
        assert len(stack.agent.session.events) == before
        waiting = [message_text(message) for message in stack.agent.inbox.next_step]
        assert waiting == ["note c2"]


@pytest.mark.parametrize("end", ["ok", "raise", "abort"])
async def test_T137_nothing_of_a_call_is_alive_when_the_agent_is_idle(end: str) -> None:
    async with loop_stack(calls("c1", "c2"), say("ok")) as stack:
        inside = anyio.Event()
        left: list[str] = []

        async def body(run: ToolRunContext) -> str:
            inside.set()
            try:
                if end == "abort":
                    await run.signal.wait()
                if end == "raise":
                    raise ValueError("no")
                return "ok"
            finally:
                with anyio.CancelScope(shield=True):
                    for _ in range(20):
                        await anyio.lowlevel.checkpoint()
                left.append(run.call_id)

        add(stack, "t", body, parallel=True)
        stack.agent.followup("go")
        with anyio.fail_after(5):
            await inside.wait()
            if end == "abort":
                await quiet()
                stack.agent.cancel()
            await stack.agent.when_idle()
        assert sorted(left) == ["c1", "c2"]
        assert stack.ctx.agent_loop.census(stack.agent) == []


# ---- the log --------------------------------------------------------------------------------


def pairing_problems(events: Sequence[SessionEvent]) -> list[str]:
    """Calls without their one result in their step, each behind its one `tool/call`."""
    problems = list(log_problems(events))
    open_calls: list[str] = []
    for event in events:
        match event.data:
            case ToolCallEvent(call_id=call_id):
                open_calls.append(call_id)
            case ToolResultEvent(message=message):
                if message.tool_call_id not in open_calls:
                    problems.append(f"seq {event.seq}: a result without tool/call")
                else:
                    open_calls.remove(message.tool_call_id)
            case StepEnd() if open_calls:
                problems.append(f"seq {event.seq}: {open_calls} are not answered")
            case _:
                pass
    return problems


async def test_T121_every_call_is_answered_once_in_order_before_its_step_ends() -> None:
    reply = call(
        ("c1", "good", ""),
        ("c2", "nobody", ""),
        ("c3", "bad", ""),
        ("c4", "good", "{broken"),
        ("c5", "denied", ""),
        ("c6", "blocked", ""),
        ("c7", "good", '{"a": 1e999}'),
        ("c8", "slow", ""),
    )
    async with loop_stack(reply, calls("c9", name="good"), say("ok")) as stack:

        async def bad(run: ToolRunContext) -> str:
            raise ValueError("no")

        async def slow(run: ToolRunContext) -> str:
            await quiet()
            return "ok"

        async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            return Deny("no") if event.exec.name == "denied" else await next_()

        async def post(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
            return Block("no") if event.exec.name == "blocked" else await next_()

        stack.ctx.on(ToolsPreExecute, pre, everywhere=True)
        stack.ctx.on(ToolsPostExecute, post, everywhere=True)
        for name, body in (("good", echo), ("bad", bad), ("slow", slow), ("blocked", echo)):
            add(stack, name, body, parallel=True)
        await stack.run("go")
        assert pairing_problems(stack.agent.session.events) == []
        assert [each for each, _ in results(stack)] == [f"c{number}" for number in range(1, 10)]


async def test_T72_a_result_is_logged_with_its_message_its_error_and_its_meta_only() -> None:
    reply = call(("c1", "shown", ""), ("c2", "plain", ""), ("c3", "refused", ""))
    async with loop_stack(reply, say("ok")) as stack:

        @tool(name="shown", description=".", presentation_meta=lambda arguments, value: {"n": 1})
        async def shown(run: ToolRunContext) -> str:
            run.defer_context(create_user_message("note"))
            run.conclude_turn()
            return "the value"

        async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
            info = ToolErrorInfo(name="PolicyError", code="NOT_TODAY", reason="house rules")
            return Deny("no", info) if event.exec.name == "refused" else await next_()

        stack.ctx.on(ToolsPreExecute, pre, everywhere=True)
        stack.ctx.tools.register(shown)

        async def plain(run: ToolRunContext) -> str:
            raise ValueError("broke")

        add(stack, "plain", plain)
        await stack.run("go")
        events = stack.agent.session.events
        rows = [event_to_json(e)["data"] for e in events if isinstance(e.data, ToolResultEvent)]
        for row, call_id in zip(rows, ("c1", "c2", "c3"), strict=True):
            assert isinstance(row, dict)
            message = row.pop("message")
            assert isinstance(message, dict)
            assert (row.pop("turn"), row.pop("step")) == (1, 1)
            assert (message["role"], message["toolCallId"]) == ("tool", call_id)
            assert message["isError"] is (call_id != "c1")
        assert rows == [
            {"meta": {"n": 1}},
            {},
            {"error": {"name": "PolicyError", "code": "NOT_TODAY", "reason": "house rules"}},
        ]


async def test_T134_logs_of_code_presentation_load_and_native_is_the_only_mode() -> None:
    async with loop_stack(calls("c1"), say("ok")) as stack:
        add(stack, "t", echo)
        await stack.run("go")
        with pytest.raises(Exception, match="reserved"):
            add(stack, "run_code", echo)
        assert {each.name for each in stack.model.requests[-1].tools or ()} == {"t"}
        session = stack.agent.session
        rows = [decode_json(encode_event(event)) for event in session.events]
        at = next(e.seq for e in session.events if isinstance(e.data, ToolResultEvent))
        dispatch = {"turn": 1, "step": 1, "callId": "c1:ptc:1", "name": "t", "arguments": {}}
        events: list[SessionEvent] = []
        foreign = [
            {"type": "tool/ptc-dispatch-start", "time": 1, "data": dispatch},
            {"type": "tool/ptc-dispatch", "time": 2, "data": {**dispatch, "value": "x"}},
        ]
        for seq, row in enumerate([*rows[:at], *foreign, *rows[at:]]):
            assert isinstance(row, dict)
            events.append(decode_stored_event(encode({**row, "seq": seq})))
        loaded = Session.from_restore(session.id, events, session.header, 0)
        assert loaded.derive_messages() == session.derive_messages()
        kept = decode_json(encode_event(events[at]))
        assert kept == {**foreign[0], "seq": at}


# ---- the prompt -----------------------------------------------------------------------------


def prompts(stack: LoopStack) -> list[str]:
    return [
        message_text(event.data.message)
        for event in stack.agent.session.events
        if isinstance(event.data, SystemMessageEvent)
    ]


async def test_T135_the_rendered_prompt_is_logged_when_it_changes_and_only_there() -> None:
    async with loop_stack(say("1"), say("2"), say("3"), say("4")) as stack:
        text = ["A marked prompt."]
        stack.ctx.system_prompt.section("test", 1, lambda assembly: text[0])
        await stack.run("a")
        await stack.run("b")
        assert prompts(stack) == ["A marked prompt."]
        before = len(stack.agent.session.events)
        await stack.ctx.system_prompt.assemble(stack.agent, agent=stack.agent)
        assert len(stack.agent.session.events) == before
        text[0] = "Another marked prompt."
        await stack.run("c")
        assert prompts(stack) == ["A marked prompt.", "Another marked prompt."]
        headers = [
            encode_event(event)
            for event in stack.agent.session.events
            if isinstance(event.data, RequestHeaderEvent)
        ]
        assert headers
        assert not any(b"marked" in header for header in headers)
        assert all(request.system is None for request in stack.model.requests)
    async with loop_stack(say("1")) as stack:
        await stack.run("a")
        assert prompts(stack) == [""]
        assert [message.role for message in stack.model.requests[0].messages] == ["user"]


class InHistory(ScriptedModel):
    """Takes changed prompts in the history."""

    @override
    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> LlmResolvedModelInfo:
        return LlmResolvedModelInfo(
            provider=provider, id=model, name=model, system_prompt_update="in-history"
        )


async def test_T135_T136_changed_tools_go_into_header_and_request_and_gather_the_prompt() -> None:
    async with loop_stack() as stack:
        model = InHistory(say("1"), say("2"), say("3"), say("4"))
        stack.ctx.llm.register_adapter(["history"], model)
        stack.handle = await stack.ctx.agents.create(provider="history", model="m")
        text = ["one"]
        stack.ctx.system_prompt.section("test", 1, lambda assembly: text[0])
        add(stack, "b", echo)
        await stack.run("a")
        text[0] = "two"
        await stack.run("b")
        await stack.run("again")
        assert prompts(stack) == system_texts(stack) == ["one", "two"]
        before = len(stack.agent.session.events)
        add(stack, "a", echo)
        assert len(stack.agent.session.events) == before
        await stack.run("c")
        assert system_texts(stack) == ["two"]
        names = [[each.name for each in request.tools or ()] for request in model.requests]
        assert names == [["b"], ["b"], ["b"], ["a", "b"]]
        logged = [
            (event.data.reason, [each.name for each in event.data.header.tools or ()])
            for event in stack.agent.session.events
            if isinstance(event.data, RequestHeaderEvent)
        ]
        assert logged == [("initial", ["b"]), ("change", ["a", "b"])]
        assert stack.agent.session.request_header() is not None


def system_texts(stack: LoopStack) -> list[str]:
    messages = stack.agent.session.derive_messages()
    return [message_text(each) for each in messages if each.role == "system"]
