"""Facts about providers and models. Upstream: packages/llm/llm/src/types.ts."""

from typing import Literal, TypeAlias

import msgspec

from dsh_brand import Secret, Wire
from dsh_llm.ids import ReasoningEffortId
from dsh_llm.signal import AbortSignal

SystemPromptUpdate: TypeAlias = Literal["in-history"]
"""A later prompt may stand in history; absent, only a leading prompt is read."""

ToolUpdateMode: TypeAlias = Literal["addition-only", "in-history"]
"""Tool changes may stand in history; absent, every request declares the complete list."""


class LlmProviderInfo(Wire, frozen=True):
    """A route to a provider."""

    id: str
    name: str


class LlmModelInfo(Wire, frozen=True):
    """A model as its provider lists it."""

    provider: str
    id: str
    name: str
    description: str | None = None
    input_modalities: tuple[str, ...] | None = None


class LlmModelContext(Wire, frozen=True):
    """How much a model can read."""

    context_window: int
    """In tokens."""


class LlmReasoningEffortInfo(Wire, frozen=True):
    """One reasoning effort that a model offers."""

    id: ReasoningEffortId | str
    name: str
    description: str | None = None


class LlmModelReasoningInfo(Wire, frozen=True):
    """The reasoning efforts that a model offers."""

    efforts: tuple[LlmReasoningEffortInfo, ...]
    default_effort: ReasoningEffortId | str | None = None


class LlmResolvedModelInfo(Wire, frozen=True):
    """All that is known about one model on one route."""

    provider: str
    id: str
    name: str
    description: str | None = None
    input_modalities: tuple[str, ...] | None = None
    context: LlmModelContext | None = None
    default_max_tokens: int | None = None
    reasoning: LlmModelReasoningInfo | None = None
    system_prompt_update: SystemPromptUpdate | None = None
    tool_update: ToolUpdateMode | None = None


class LlmConfigurableProvider(Wire, frozen=True):
    """A provider that a person may set up, and where its settings live."""

    provider: str
    display_name: str
    settings_ns: str
    settings_path: tuple[str, ...]
    declared: bool | None = None
    error: str | None = None


class LlmModelDiscoveryRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Asks which models an endpoint serves, perhaps before it is configured."""

    provider: str | None = None
    base_url: str | None = None
    api: str | None = None
    api_key: Secret | None = None
    signal: AbortSignal | None = None


class LlmDiscoveredModel(Wire, frozen=True):
    """A model that an endpoint says it serves."""

    id: str
    name: str | None = None
    context_window: int | None = None
    max_tokens: int | None = None
    input_modalities: tuple[str, ...] | None = None
