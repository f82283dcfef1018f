"""What models read from this package. Changed on purpose only: a test holds each."""

from typing import Final

IDENTITY: Final = (
    "You are an agent running on DeepSeek Harness. You work through the tools you are given, and "
    "what you write reaches the person you work for."
)
CONTEXT_HEADING: Final = (
    "Current facts of this session. They replace all facts given in this way earlier."
)
CONTEXT_CLEARED: Final = (
    "The facts of this session that were given earlier no longer apply, and there are no new ones."
)
