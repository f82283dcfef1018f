"""Errors of this package.

HarnessError
└── RetryLogError (``INVARIANT``)
"""

from dsh_brand import HarnessError
from dsh_llm import codes


class RetryLogError(HarnessError, ValueError):
    """A record of a retry that no executor may have written.

    Attributes:
        seq: Where it stands in the log.
    """

    def __init__(self, event_type: str, seq: int, reason: str) -> None:
        """Args: the type and seq of the record, and what is wrong with it."""
        super().__init__(f"{event_type!r} at seq {seq}: {reason}", codes.INVARIANT)
        self.seq = seq
