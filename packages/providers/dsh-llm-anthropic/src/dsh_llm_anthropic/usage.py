"""Token counts of one response; later reports are totals, not increments (L150)."""

import msgspec

from dsh_brand import MAX_SAFE_INT
from dsh_llm import TokenUsage

from .payloads import Usage


class UsageCounts:
    """Keeps the last count of each kind that a response reported."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def take(self, usage: Usage | None) -> None:
        """Take a report in; what it leaves out stays as it was."""
        if usage is None:
            return
        details = usage.output_tokens_details
        thought = None if details is None else details.thinking_tokens
        reported = {**msgspec.structs.asdict(usage), "output_tokens_details": thought}
        for name, count in reported.items():
            # A number beyond that is no count, and no log could store it.
            if count is not None and 0 <= count <= MAX_SAFE_INT:
                self._counts[name] = count

    def usage(self) -> TokenUsage | None:
        """The usage so far; `None` as long as neither input nor output was counted."""
        counts = self._counts
        sent, answered = counts.get("input_tokens"), counts.get("output_tokens")
        if sent is None and answered is None:
            return None
        read = counts.get("cache_read_input_tokens")
        written = counts.get("cache_creation_input_tokens")
        total = None
        if sent is not None and answered is not None:
            summed = sent + answered + (read or 0) + (written or 0)
            total = summed if summed <= MAX_SAFE_INT else None
        return TokenUsage(
            input_tokens=sent or 0,
            output_tokens=answered or 0,
            total_tokens=total,
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=counts.get("output_tokens_details"),
        )
