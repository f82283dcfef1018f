"""What one route is, after its profile and preset were read: plain values, fixed for its life."""

from typing import Literal

from dsh_llm_http import HttpRoute

SystemRole = Literal["system", "developer"]
MaxTokensField = Literal["max_tokens", "max_completion_tokens"]
ReasoningField = Literal["reasoning_content", "reasoning", "none"]
ThinkingFormat = Literal["deepseek", "effort", "enable_thinking", "none"]


class Route(HttpRoute, frozen=True, kw_only=True):
    """One provider route with its dialect of chat completions."""

    system_role: SystemRole
    max_tokens_field: MaxTokensField
    reasoning_field: ReasoningField
    stream_usage: bool
    strict_tools: bool
    thinking_format: ThinkingFormat
