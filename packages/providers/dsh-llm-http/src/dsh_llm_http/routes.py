"""What every HTTP route is, after profile and preset were read: plain values, fixed for life."""

from collections.abc import Mapping
from typing import Literal

import msgspec
from typing_extensions import override

from dsh_llm import LlmModelReasoningInfo, RetryPolicyConfig

KeyHeader = Literal["authorization", "x-api-key"]
"""Where the key travels: as bearer token, or by itself."""


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


class HttpRoute(msgspec.Struct, frozen=True, kw_only=True):
    """One provider route; each protocol adds its own switches."""

    name: str
    label: str
    """How people call the provider."""
    base_url: str
    """Without trailing slash."""
    api_key_env: str | None
    key_header: KeyHeader = "authorization"
    headers: Mapping[str, str]
    """Of every request; they may hold credentials, so a rendering shows their names only."""
    idle_s: float
    keep_alive: bool
    models: Mapping[str, ModelFacts]
    """Declared models in declaration order."""
    unlisted: ModelFacts
    """What holds for a model that is not declared."""
    retry: RetryPolicyConfig | None = None

    @override
    def __repr__(self) -> str:
        facts = ((name, getattr(self, name)) for name in self.__struct_fields__)
        shown = (
            f"{name}={sorted(value) if name == 'headers' else value!r}" for name, value in facts
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def model(self, model_id: str) -> ModelFacts:
        """The facts of a model; an undeclared one passes through with its id as name."""
        declared = self.models.get(model_id)
        if declared is not None:
            return declared
        return msgspec.structs.replace(self.unlisted, id=model_id, name=model_id)
