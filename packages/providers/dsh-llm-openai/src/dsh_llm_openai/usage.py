"""Provider token counts to disjoint ones (L131)."""

from dsh_brand import MAX_SAFE_INT
from dsh_llm import TokenUsage

from .payloads import Usage


def usable(usage: Usage) -> bool:
    """Whether a report says anything: some providers send empty ones along the stream."""
    return _known(usage.prompt_tokens) is not None or _known(usage.completion_tokens) is not None


def token_usage(usage: Usage) -> TokenUsage:
    """Counts where input, cache reads and cache writes are disjoint."""
    prompt = _known(usage.prompt_tokens)
    completion = _known(usage.completion_tokens)
    details = usage.prompt_tokens_details
    read = _known(details.cached_tokens) if details is not None else None
    if read is None:
        read = _known(usage.prompt_cache_hit_tokens)
    write = _known(details.cache_write_tokens) if details is not None else None
    output_details = usage.completion_tokens_details
    thought = _known(output_details.reasoning_tokens) if output_details is not None else None
    cached = (read or 0) + (write or 0)
    total = None
    if prompt is not None and completion is not None and cached <= prompt:
        stated = _known(usage.total_tokens)
        summed = prompt + completion
        total = summed if stated in (None, summed) and summed <= MAX_SAFE_INT else None
    return TokenUsage(
        input_tokens=max(0, (prompt or 0) - cached),
        output_tokens=completion or 0,
        total_tokens=total,
        cache_read_tokens=read,
        cache_write_tokens=write,
        reasoning_tokens=thought,
    )


def _known(count: int | None) -> int | None:
    # A larger number is no count, and no log could store it.
    return count if count is not None and 0 <= count <= MAX_SAFE_INT else None
