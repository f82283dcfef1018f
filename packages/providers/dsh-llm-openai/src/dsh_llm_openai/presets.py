"""What is known about named providers (L118, L119)."""

from collections.abc import Mapping
from typing import Literal

from dsh_llm_http.presets import HttpPreset

from .routes import MaxTokensField, ReasoningField, SystemRole, ThinkingFormat

PresetName = Literal[
    "deepseek", "openai", "openrouter", "dashscope", "vllm", "ollama", "llama.cpp", "generic"
]


class Preset(HttpPreset, frozen=True, kw_only=True):
    """Defaults of a chat-completions provider."""

    system_role: SystemRole = "system"
    max_tokens_field: MaxTokensField = "max_tokens"
    reasoning_field: ReasoningField = "none"
    stream_usage: bool = True
    keep_alive: bool = True
    thinking_format: ThinkingFormat = "none"
    efforts: tuple[str, ...] = ()
    max_tokens: int | None = None


PRESETS: Mapping[PresetName, Preset] = {
    "deepseek": Preset(
        name="DeepSeek",
        base_url="https://api.deepseek.com",
        base_url_env="DEEPSEEK_BASE_URL",
        api_key_env="DEEPSEEK_API_KEY",
        reasoning_field="reasoning_content",
        thinking_format="deepseek",
        efforts=("off", "low", "high", "max"),
        default_effort="high",
        context_window=1_000_000,
        max_tokens=256_000,
        input_modalities=("text",),
    ),
    "openai": Preset(
        name="OpenAI",
        base_url="https://api.openai.com/v1",
        api_key_env="OPENAI_API_KEY",
        max_tokens_field="max_completion_tokens",
        thinking_format="effort",
        efforts=("minimal", "low", "medium", "high"),
    ),
    "openrouter": Preset(
        name="OpenRouter",
        base_url="https://openrouter.ai/api/v1",
        api_key_env="OPENROUTER_API_KEY",
        reasoning_field="reasoning",
        thinking_format="effort",
        efforts=("low", "medium", "high"),
    ),
    "dashscope": Preset(
        name="DashScope",
        base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
        base_url_env="DASHSCOPE_BASE_URL",
        api_key_env="DASHSCOPE_API_KEY",
        reasoning_field="reasoning_content",
        thinking_format="enable_thinking",
        efforts=("off", "on"),
    ),
    "vllm": Preset(
        name="vLLM",
        base_url="http://127.0.0.1:8000/v1",
        reasoning_field="reasoning_content",
    ),
    "ollama": Preset(
        name="Ollama",
        base_url="http://127.0.0.1:11434/v1",
        reasoning_field="reasoning",
    ),
    "llama.cpp": Preset(
        name="llama.cpp",
        base_url="http://127.0.0.1:8080/v1",
        reasoning_field="reasoning_content",
        # It offers to keep connections and closes each after its answer: a next request on the
        # same connection would fail now and then.
        keep_alive=False,
    ),
    "generic": Preset(name="OpenAI-compatible service", reasoning_field="reasoning_content"),
}
