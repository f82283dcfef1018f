"""What every tool has to keep, whoever wrote it."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import anyio

from dsh_brand import JsonValue, encode, freeze_json
from dsh_llm import AbortController

from ._bench import ToolBench, code_of, text_of, tool_bench
from ._declaration import NAME
from .errors import ToolError
from .json_schema import assert_object_json_schema
from .presentation import CallView, ResultView
from .types import ToolDefinition, ToolExecutionResult, ToolFailure

_ODD_ARGUMENTS: Final[tuple[JsonValue, ...]] = ("{", None, [], {"no such argument": True})


class ToolCheckError(AssertionError):
    """A tool does not keep what it has to.

    Attributes:
        problems: All that is wrong.
    """

    def __init__(self, tool_name: str, problems: list[str]) -> None:
        super().__init__(f"tool {tool_name!r}: " + "; ".join(problems))
        self.problems = tuple(problems)


async def check_tool(
    definition: ToolDefinition,
    *calls: Mapping[str, object],
    bench: ToolBench | None = None,
    grace_s: float = 5.0,
) -> list[ToolExecutionResult]:
    """Check a tool: its declaration, and what it does when called, called wrongly, and aborted.

    Args:
        definition: The tool.
        *calls: Arguments with which it succeeds. It is called three times with each: to its end,
            aborted before it starts, and aborted while it runs.
        bench: With whatever the tool needs; the tool is registered there. A bare one by default.
        grace_s: How long a call may go on after an abort.

    Returns:
        The results of `calls`.

    Raises:
        ToolCheckError: What is wrong, all of it.
    """
    problems = list(_declaration(definition))
    if not problems and bench is None:
        async with tool_bench() as own:
            return await _check_calls(own, definition, calls, grace_s)
    if not problems and bench is not None:
        return await _check_calls(bench, definition, calls, grace_s)
    raise ToolCheckError(definition.name, problems)


def _declaration(definition: ToolDefinition) -> Iterator[str]:
    if not NAME.fullmatch(definition.name):
        yield "its name must be 1 to 64 letters, digits, '_' or '-', or providers refuse it"
    if not definition.description.strip():
        yield "it has no description, so no model knows when to call it"
    try:
        assert_object_json_schema(definition.parameters, "its parameters")
    except ToolError as error:
        yield error.message
        return
    properties = definition.parameters.get("properties", {})
    assert isinstance(properties, Mapping)
    for name, schema in properties.items():
        if not isinstance(schema, Mapping) or not schema.get("description"):
            yield f"parameter {name!r} has no description"


async def _check_calls(
    bench: ToolBench,
    definition: ToolDefinition,
    calls: tuple[Mapping[str, object], ...],
    grace_s: float,
) -> list[ToolExecutionResult]:
    problems: list[str] = []
    registered = bench.tools.register(definition)
    first = encode(_own_schema(bench, definition))
    registered()
    registered = bench.tools.register(definition)
    if encode(_own_schema(bench, definition)) != first:
        problems.append("its schema has other bytes when it is registered again")
    results: list[ToolExecutionResult] = []
    try:
        await _call_oddly(bench, definition, problems)
        for arguments in calls:
            results.append(await _call(bench, definition, arguments, problems))
            await _abort(bench, definition, arguments, grace_s, problems)
    finally:
        registered()
    if problems:
        raise ToolCheckError(definition.name, problems)
    return results


def _own_schema(bench: ToolBench, definition: ToolDefinition) -> object:
    return next(each for each in bench.tools.schemas() if each.name == definition.name)


async def _call_oddly(bench: ToolBench, definition: ToolDefinition, problems: list[str]) -> None:
    """Arguments as models get them wrong, and as old logs hold them."""
    if definition.parameters.get("required"):
        for arguments in _ODD_ARGUMENTS:
            result = await bench.tools.execute(bench.call(definition.name, arguments))
            if not isinstance(result, ToolFailure):
                problems.append(f"it accepts {arguments!r} although arguments are required")
            elif not text_of(result).strip():
                problems.append(f"its error for {arguments!r} says nothing")
    for arguments in _ODD_ARGUMENTS:
        for what, function in (
            ("present_call", definition.present_call),
            ("is_concurrency_safe", definition.is_concurrency_safe),
        ):
            if function is not None:
                _tried(what, partial(function, arguments), problems)


async def _call(
    bench: ToolBench,
    definition: ToolDefinition,
    arguments: Mapping[str, object],
    problems: list[str],
) -> ToolExecutionResult:
    result = await bench.run_as(bench.agent(), definition.name, **arguments)
    shown = f"with {dict(arguments)!r}"
    if isinstance(result, ToolFailure):
        problems.append(f"it fails {shown}: {text_of(result)}")
    given = freeze_json(dict(arguments))
    if definition.present_call is not None:
        _present(f"present_call {shown}", CallView, definition.present_call, (given,), problems)
    if definition.present_result is not None:
        both = (given, result)
        _present(f"present_result {shown}", ResultView, definition.present_result, both, problems)
    return result


async def _abort(
    bench: ToolBench,
    definition: ToolDefinition,
    arguments: Mapping[str, object],
    grace_s: float,
    problems: list[str],
) -> None:
    caller = AbortController()
    caller.abort("check")
    early = bench.call(definition.name, arguments, agent=bench.agent(), signal=caller.signal)
    if code_of(await bench.tools.execute(early)) != "ABORTED_BEFORE_DISPATCH":
        problems.append("it runs although its caller aborted before")
    caller = AbortController()
    late = bench.call(definition.name, arguments, agent=bench.agent(), signal=caller.signal)
    with anyio.move_on_after(grace_s) as limit:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.tools.execute, late)
            await anyio.wait_all_tasks_blocked()  # it waits for something, or is done
            caller.abort("check")
    if limit.cancelled_caught:
        problems.append(f"it goes on for more than {grace_s:g} s after an abort")


def _present(
    what: str,
    kind: type[CallView] | type[ResultView],
    function: Callable[..., object],
    arguments: tuple[object, ...],
    problems: list[str],
) -> None:
    first = _tried(what, partial(function, *arguments), problems)
    if first is not None and not isinstance(first, kind):
        problems.append(f"{what} gives {first!r:.80}, which is no {kind.__name__}")
    elif _tried(what, partial(function, *arguments), problems) != first:
        problems.append(f"{what} gives another view the second time; it must be pure")


def _tried(what: str, call: Callable[[], object], problems: list[str]) -> object:
    try:
        return call()
    except Exception as error:  # noqa: BLE001  # what a foreign presenter raises is the finding
        problems.append(f"{what} raises {error!r:.80}")
        return None
