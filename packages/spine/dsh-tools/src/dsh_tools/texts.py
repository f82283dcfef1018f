"""What models and people read from the tool layer. Changed on purpose only: a test holds each."""

from typing import Final

ERROR_PREFIX: Final = "Error: "
NO_OUTPUT: Final = "(no output)"
UNRENDERABLE: Final = "an error without a readable message"
ABORTED: Final = "the call was aborted"
ABORTED_BEFORE_DISPATCH: Final = "the call was aborted before the tool ran"
BLOCKED: Final = "the result was blocked by policy"
NEEDS_APPROVAL: Final = "tool {name!r} needs approval, and nobody here can give it"
NEEDS_AGENT: Final = "tool {name!r} needs approval, and a call without an agent cannot be approved"
APPROVAL_REJECTED: Final = "tool {name!r} was not run: the request for approval was rejected"
APPROVAL_CANCELLED: Final = "tool {name!r} was not run: the request for approval was cancelled"
APPROVAL_UNAVAILABLE: Final = "tool {name!r} was not run: nobody could be asked for approval"
ARGUMENTS_NOT_JSON: Final = "the arguments cannot be passed on: {cause}"
UNKNOWN_TOOL: Final = "unknown tool {name}"
SIMILAR_TOOLS: Final = "; did you mean {names}?"
INVALID_ARGUMENTS: Final = "invalid arguments for tool {name!r}: {problems}"
ARGUMENTS_TEXT: Final = (
    "invalid arguments for tool {name!r}: an object was expected, but the text is no JSON: {cause}"
)
ARGUMENTS_NO_OBJECT: Final = (
    "invalid arguments for tool {name!r}: an object was expected, not {value}"
)
CUT_OFF: Final = "it is cut off at the end"
INVALID_OUTPUT: Final = "tool {name!r} returned an invalid result: {cause}"
