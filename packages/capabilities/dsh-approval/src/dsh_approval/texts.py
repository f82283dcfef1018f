"""What models read about approval. Changed on purpose only: a test holds each."""

from typing import Final

POLICY_ASK: Final = (
    "Approval: calls that need it are put to a person, each one anew; an approval covers that one "
    "call. If one is rejected, do not repeat it: choose another way or explain what you need."
)
POLICY_NEVER: Final = (
    "Approval: nobody can be asked in this session, so calls that need approval are rejected at "
    "once. Do not try them; work with what needs no approval, and say what you could not do."
)
CHANGED: Final = "The approval policy was changed. {policy}"
SUMMARY: Final = "Approval policy: {policy}"

DENIED: Final = "tool {name!r} may not be called in this way"
ASKED: Final = "a rule asks for approval of {name!r}"
