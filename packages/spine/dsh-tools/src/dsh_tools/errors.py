"""Errors of the tool layer.

HarnessError
└── ToolError
    ├── ToolDeclarationError     a definition is malformed (also a TypeError)
    ├── JsonSchemaError          a schema leaves the subset; `violations`
    ├── ToolRegistrationError    a name is taken or reserved, a restriction is wrong
    ├── ToolArgsError            the model sent wrong arguments; `violations`
    ├── ToolOutputError          a body returned what its definition does not allow
    ├── ToolNotFoundError        the caller sees no tool of that name
    ├── ToolDecisionError        a policy answered with something that is no decision
    └── ToolExecutionClosedError a contribution came after the result was frozen
"""

from collections.abc import Sequence

from dsh_brand import HarnessError

from .validation import Violation


class ToolError(HarnessError):
    """Base of the errors of this package."""


class ToolDeclarationError(ToolError, TypeError):
    """A tool is declared in a way that cannot work; the message names the tool and the part."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "INVALID_TOOL")


class JsonSchemaError(ToolError):
    """A schema uses something outside the subset.

    Attributes:
        violations: Every offending place, as ``path: what is wrong there``.
    """

    def __init__(self, label: str, violations: Sequence[str]) -> None:
        super().__init__(
            f"{label} uses JSON Schema that is not supported: {'; '.join(violations)}",
            "UNSUPPORTED_SCHEMA",
        )
        self.violations = tuple(violations)


class ToolRegistrationError(ToolError):
    """A registration or restriction was refused; the message says why and what to do instead."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "TOOL_REGISTRATION")


class ToolArgsError(ToolError):
    """The arguments do not satisfy the tool's parameters.

    Attributes:
        violations: All that is wrong, in a stable order.
    """

    def __init__(self, message: str, violations: Sequence[Violation] = ()) -> None:
        super().__init__(message, "INVALID_ARGS")
        self.violations = tuple(violations)


class ToolOutputError(ToolError):
    """A body, a renderer or a meta projection returned what the definition does not allow."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "INVALID_TOOL_OUTPUT")


class ToolNotFoundError(ToolError):
    """No tool of the called name is visible to the caller."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "UNKNOWN_TOOL")


class ToolDecisionError(ToolError):
    """A listener, an approval service or a wrapper answered with something of the wrong kind."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "INVALID_DECISION")


class ToolExecutionClosedError(ToolError):
    """Something was contributed to an execution whose result is already frozen."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "EXECUTION_CLOSED")
