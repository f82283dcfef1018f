"""What one route is, after its profile and preset were read: plain values, fixed for its life."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from dsh_llm import LlmModelReasoningInfo, RetryPolicyConfig

SystemRole = Literal["system", "developer"]
MaxTokensField = Literal["max_tokens", "max_completion_tokens"]
ReasoningField = Literal["reasoning_content", "reasoning", "none"]
ThinkingFormat = Literal["deepseek", "effort", "none"]


class ModelFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one model of a route."""

    id: str
    name: str
    description: str | None = None
    context_window: int | None = None
    max_tokens: int | None = None
    input_modalities: tuple[str, ...] | None = None
    reasoning: LlmModelReasoningInfo | None = None
    system_prompt_in_history: bool = False


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One provider route."""

    name: str
    label: str
    """How people call the provider."""
    base_url: str
    """Without trailing slash."""
    api_key_env: str | None
    headers: Mapping[str, str]
    idle_s: float
    system_role: SystemRole
    max_tokens_field: MaxTokensField
    reasoning_field: ReasoningField
    stream_usage: bool
    keep_alive: bool
    strict_tools: bool
    thinking_format: ThinkingFormat
    models: Mapping[str, ModelFacts]
    """Declared models in declaration order."""
    unlisted: ModelFacts
    """What holds for a model that is not declared."""
    retry: RetryPolicyConfig | None = None

    def model(self, model_id: str) -> ModelFacts:
        """The facts of a model; an undeclared one passes through with its id as name."""
        declared = self.models.get(model_id)
        if declared is not None:
            return declared
        return msgspec.structs.replace(self.unlisted, id=model_id, name=model_id)
