"""Tools as typed functions and the pipeline that runs them.

`tool` makes a definition of a function, `ctx.tools` (`ToolRegistry`) owns the registrations and
runs calls, the events are where policies take part.
"""

from ._codecs import Number
from ._results import failure as tool_failure
from ._results import failure_of as tool_failure_of
from ._stages import Stage
from ._threads import MAX_THREADS, ThreadGivenUpError
from ._visibility import Guard
from .authoring import FunctionTool, tool
from .errors import (
    JsonSchemaError,
    ToolArgsError,
    ToolDecisionError,
    ToolDeclarationError,
    ToolError,
    ToolExecutionClosedError,
    ToolNotFoundError,
    ToolOutputError,
    ToolRegistrationError,
)
from .events import ToolsChange, ToolsExecute, ToolsPostExecute, ToolsPreExecute, ToolsResult
from .execution import ToolRunContext, ToolToken
from .json_schema import assert_json_schema, assert_object_json_schema
from .offering import offer_by_service
from .presentation import CallView, ResultView
from .registry import ToolRegistry
from .scheduler import Prepared, ToolScheduler
from .types import (
    Accept,
    Allow,
    Arguments,
    Ask,
    Block,
    CancelMode,
    Content,
    Deny,
    PostToolDecision,
    PreToolDecision,
    ToolDefinition,
    ToolErrorInfo,
    ToolExecutionInput,
    ToolExecutionResult,
    ToolFailure,
    ToolFault,
    ToolOutput,
    ToolSuccess,
)
from .validation import Violation, validate

__all__ = [
    "MAX_THREADS",
    "Accept",
    "Allow",
    "Arguments",
    "Ask",
    "Block",
    "CallView",
    "CancelMode",
    "Content",
    "Deny",
    "FunctionTool",
    "Guard",
    "JsonSchemaError",
    "Number",
    "PostToolDecision",
    "PreToolDecision",
    "Prepared",
    "ResultView",
    "Stage",
    "ThreadGivenUpError",
    "ToolArgsError",
    "ToolDecisionError",
    "ToolDeclarationError",
    "ToolDefinition",
    "ToolError",
    "ToolErrorInfo",
    "ToolExecutionClosedError",
    "ToolExecutionInput",
    "ToolExecutionResult",
    "ToolFailure",
    "ToolFault",
    "ToolNotFoundError",
    "ToolOutput",
    "ToolOutputError",
    "ToolRegistrationError",
    "ToolRegistry",
    "ToolRunContext",
    "ToolScheduler",
    "ToolSuccess",
    "ToolToken",
    "ToolsChange",
    "ToolsExecute",
    "ToolsPostExecute",
    "ToolsPreExecute",
    "ToolsResult",
    "Violation",
    "assert_json_schema",
    "assert_object_json_schema",
    "offer_by_service",
    "tool",
    "tool_failure",
    "tool_failure_of",
    "validate",
]
