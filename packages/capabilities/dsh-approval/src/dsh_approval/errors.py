"""Errors of approval.

HarnessError
└── ApprovalError    ``APPROVAL_NO_TURN``: nobody can be asked between turns
                     ``APPROVAL_UNKNOWN_ANSWER``: an outcome or policy that does not exist
                     ``APPROVAL_INVALID_RULE``: a rule that cannot mean anything
"""

from typing import Literal

from dsh_brand import HarnessError

ApprovalCode = Literal["APPROVAL_NO_TURN", "APPROVAL_UNKNOWN_ANSWER", "APPROVAL_INVALID_RULE"]


class ApprovalError(HarnessError):
    """Approval was used in a way that cannot work."""

    def __init__(self, message: str, code: ApprovalCode) -> None:
        super().__init__(message, code)
