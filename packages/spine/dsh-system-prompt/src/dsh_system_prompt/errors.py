"""Errors of prompt assembly.

HarnessError
└── SystemPromptError
    ├── PromptRegistrationError    a registration was refused
    ├── CompletePromptError        two sections each want to be the whole prompt
    ├── ToolOrderError             the configured order and the tools do not fit
    └── PromptVariableError        a `{{name}}` cannot be filled; `section`
        ├── UnknownVariableError   nobody registered it; `variable`
        ├── MissingVariableError   registered, but without a value; `variable`
        └── MalformedVariableError the braces do not hold a name
"""

from dsh_brand import HarnessError


class SystemPromptError(HarnessError):
    """Base of the errors of this package."""


class PromptRegistrationError(SystemPromptError):
    """A section, context or variable was refused; the message says why."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "PROMPT_REGISTRATION")


class CompletePromptError(SystemPromptError):
    """Two or more visible sections each replace the whole prompt."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "COMPLETE_PROMPT_CONFLICT")


class ToolOrderError(SystemPromptError):
    """The tools of an assembly cannot be put in order."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "TOOL_ORDER")


class PromptVariableError(SystemPromptError):
    """A variable of a section cannot be filled.

    Attributes:
        section: Name of the section.
    """

    def __init__(self, message: str, code: str, section: str) -> None:
        super().__init__(message, code)
        self.section = section


class UnknownVariableError(PromptVariableError):
    """Nobody registered the variable.

    Attributes:
        variable: Its name.
    """

    def __init__(self, message: str, section: str, variable: str) -> None:
        super().__init__(message, "UNKNOWN_VARIABLE", section)
        self.variable = variable


class MissingVariableError(PromptVariableError):
    """The variable is registered and has no value in this assembly.

    Attributes:
        variable: Its name.
    """

    def __init__(self, message: str, section: str, variable: str) -> None:
        super().__init__(message, "MISSING_VARIABLE", section)
        self.variable = variable


class MalformedVariableError(PromptVariableError):
    """Double braces that hold no variable name."""

    def __init__(self, message: str, section: str) -> None:
        super().__init__(message, "MALFORMED_VARIABLE", section)
