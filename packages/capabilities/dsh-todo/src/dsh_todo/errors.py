"""Errors of the todo list.

HarnessError
└── TodoError    a list was refused and nothing changed; ``TODO_INVALID`` or ``TODO_NO_AGENT``
"""

from typing import Literal

from dsh_brand import HarnessError


class TodoError(HarnessError):
    """A list was refused; the one before is still in force."""

    def __init__(self, message: str, code: Literal["TODO_INVALID", "TODO_NO_AGENT"]) -> None:
        super().__init__(message, code)
