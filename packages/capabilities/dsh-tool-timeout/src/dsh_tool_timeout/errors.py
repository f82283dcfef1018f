"""Errors of the timeout policy.

HarnessError
└── ToolTimeoutError    a call outlived its limit (``TOOL_TIMEOUT``)
"""

from dsh_brand import HarnessError


class ToolTimeoutError(HarnessError):
    """A call outlived the limit of its tool; it is a result, nobody raises it.

    Attributes:
        limit_ms: What was exceeded.
    """

    def __init__(self, tool_name: str, limit_ms: float) -> None:
        super().__init__(
            f"tool {tool_name!r} was stopped because it did not finish within its limit of "
            f"{limit_ms:g} ms; ask for less at a time",
            "TOOL_TIMEOUT",
        )
        self.limit_ms = limit_ms
