"""What this loop says to models, in one place."""

from typing import Final

CLEARED_PROMPT: Final = "Earlier instructions given in place of a system prompt no longer apply."

ABORTED: Final = "Error: the call was aborted after it had begun; its effects may be incomplete."
ABORTED_BEFORE_DISPATCH: Final = "Error: the turn was aborted before this call was started."
NOT_STARTED: Final = (
    "Error: the harness failed before this call was started. Retry it if it is still needed."
)
OUTCOME_UNKNOWN: Final = (
    "Error: the call was started and its outcome is unknown. Retry it only if it is read-only or "
    "idempotent; otherwise check its effects first, or ask."
)
