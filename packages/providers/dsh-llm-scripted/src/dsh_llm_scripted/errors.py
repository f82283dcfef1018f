"""Errors of this package.

HarnessError
└── LlmError (dsh_llm)
└── ScriptExhaustedError: a call came after the last entry (code MOCK_SCRIPT_EXHAUSTED)
"""

from dsh_llm import LlmError

EXHAUSTED = "MOCK_SCRIPT_EXHAUSTED"


class ScriptExhaustedError(LlmError):
    """The script has no entry left for a call."""

    def __init__(self, calls: int) -> None:
        super().__init__(
            f"the script was made for {calls} calls and this is one more; add an entry for it",
            EXHAUSTED,
        )
