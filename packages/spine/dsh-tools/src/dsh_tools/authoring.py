"""`@tool`: a typed function as a tool definition.

Name, description, parameters and output schema come from the function; arguments are checked
before it runs and reach it as typed values.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypedDict, TypeVar, cast, overload

from typing_extensions import Unpack

from dsh_brand import JsonValue

from . import texts
from ._arguments import Parameters
from ._build import Codec
from ._codecs import make_codec
from ._declaration import check_function, check_keywords, check_options, check_runs
from ._disjoint import Schema
from ._docstrings import read_docstring
from ._immediate import is_immediate
from ._members import resolve_hints
from .errors import ToolDeclarationError, ToolOutputError
from .execution import ToolRunContext
from .json_schema import assert_json_schema
from .presentation import CallView, ResultView
from .types import (
    Arguments,
    CancelMode,
    Content,
    ResultHook,
    ToolDefinition,
    ToolExecutionResult,
    ToolOutput,
)

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionTool(ToolDefinition, Generic[P, R]):
    """A definition made from a function; calling it calls the function."""

    function: Callable[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, without any of what a tool call does around it."""
        return self.function(*args, **kwargs)


class ToolOptions(TypedDict, total=False):
    """Keywords of `tool`."""

    name: str
    """The function's name by default."""
    description: str
    """The docstring's text by default."""
    output: object
    """A type, or a schema, in the place of the return annotation."""
    render: Callable[[Any, Any], Content]  # (arguments, value), as the schemas say
    """Content for the model; needed unless the output is `str`."""
    presentation_meta: Callable[[Any, Any], JsonValue]  # as above
    timeout_ms: float
    concurrency_safe: bool | Callable[[Arguments], bool]
    """True, or a classifier of valid arguments, for calls that may overlap with others."""
    present_call: Callable[[Arguments], CallView | None]
    present_result: Callable[[Arguments, ToolExecutionResult], ResultView | None]
    project_content: ResultHook
    finalize_content: ResultHook
    defer_loading: bool
    cancel: CancelMode
    """`scope` (default): the body is cancelled on abort. `cooperative`: it watches its signal."""
    thread: bool
    """Run a synchronous function in a worker thread."""


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    **options: Unpack[ToolOptions],
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[P, R] | None = None, /, **options: Unpack[ToolOptions]
) -> FunctionTool[P, R] | Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a `ToolDefinition` of a typed function; register it with `ctx.tools.register()`.

    Usable bare, or with the keywords of `ToolOptions`.

    Args:
        function: An async function, or a synchronous one together with `thread=True`. A parameter
            annotated `ToolRunContext` gets the run context and is not in the schema.
        options: See `ToolOptions`.

    Raises:
        ToolDeclarationError: Something cannot become a tool; the message names the parameter.
        JsonSchemaError: A schema given as `output` leaves the subset.
    """
    check_keywords(options, ToolOptions.__optional_keys__)
    if function is not None:
        return _define(function, options)
    return lambda decorated: _define(decorated, options)


def _define(function: Callable[P, R], options: ToolOptions) -> FunctionTool[P, R]:
    check_function(function)
    name = str(options.get("name", function.__name__))
    where = f"tool {name!r}"
    check_options(name, options)
    thread = options.get("thread", False)
    check_runs(function, where, thread=thread)
    text, documented = read_docstring(function.__doc__)
    description = options.get("description") or text
    if not description:
        raise ToolDeclarationError(f"{where}: no description; write a docstring or pass one")
    hints = _hints(function, where)
    parameters = Parameters.read(name, function, hints, documented)
    output, codec = _output(where, hints, options)
    safe = options.get("concurrency_safe", False)
    present_call = options.get("present_call")
    present_result = options.get("present_result")
    return FunctionTool(
        name=name,
        description=description,
        parameters=parameters.schema,
        output=output,
        execute=_FunctionBody(function, parameters, codec, thread=thread),
        is_concurrency_safe=parameters.classifier(safe),
        present_call=present_call and parameters.presenter(present_call),
        present_result=present_result and parameters.presenter(present_result),
        project_content=options.get("project_content"),
        finalize_content=options.get("finalize_content"),
        timeout_ms=options.get("timeout_ms"),
        defer_loading=options.get("defer_loading", False),
        cancel=options.get("cancel", "scope"),
        function=function,
    )


def _hints(function: Callable[..., object], where: str) -> dict[str, Any]:
    try:
        return resolve_hints(function)
    except (NameError, TypeError) as error:
        raise ToolDeclarationError(f"{where}: an annotation cannot be resolved: {error}") from error


def _output(
    where: str, hints: dict[str, Any], options: ToolOptions
) -> tuple[ToolOutput, Codec | None]:
    given = options.get("output")
    codec: Codec | None = None
    if isinstance(given, dict):
        schema: Schema = given
        assert_json_schema(schema, f"the output of {where}")
    else:
        if given is None and "return" not in hints:
            raise ToolDeclarationError(f"{where}: annotate what it returns, or pass output=")
        annotation = hints["return"] if given is None else given
        codec = make_codec(annotation, f"{where}, output")
        schema = codec.schema
    render = options.get("render")
    if render is None:
        if schema.get("type") != "string" or "enum" in schema:
            raise ToolDeclarationError(f"{where}: only str output renders itself; pass render=")
        render = _as_text
    meta = options.get("presentation_meta")
    return ToolOutput(schema=schema, render=render, presentation_meta=meta), codec


def _as_text(arguments: object, value: str) -> str:
    return value


class _FunctionBody:
    """Checks arguments, calls the function, and dumps what it returns."""

    def __init__(
        self,
        function: Callable[..., object],
        parameters: Parameters,
        codec: Codec | None,
        *,
        thread: bool,
    ) -> None:
        self._function = function
        self._parameters = parameters
        self._codec = codec
        self._thread = thread
        self.immediate = not thread and is_immediate(function)
        """See `is_immediate`."""

    async def __call__(self, arguments: JsonValue, run: ToolRunContext) -> object:
        values = self._parameters.build(arguments, run)
        if self._thread:
            value = await run.run_sync(self._function, **values)
        else:
            value = await cast("Callable[..., Awaitable[object]]", self._function)(**values)
        if self._codec is None:
            return value
        return _dumped(self._codec, value, self._parameters.tool_name)


def _dumped(codec: Codec, value: object, name: str) -> object:
    try:
        return codec.dump(value)
    except Exception as error:
        cause = f"{type(value).__name__} is not what its annotation says: {error}"
        raise ToolOutputError(texts.INVALID_OUTPUT.format(name=name, cause=cause)) from error
