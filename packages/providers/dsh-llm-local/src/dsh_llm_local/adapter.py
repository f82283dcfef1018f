"""The adapter of the embedded model."""

from pathlib import Path

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger
from typing_extensions import override

from dsh_llm import GenerateOptions
from dsh_llm_openai import Attempt, ModelProfile, OpenAiAdapter, Profile

from .config import Config
from .server import model_id

log: FilteringBoundLogger = structlog.get_logger(__name__)


class LocalAdapter(OpenAiAdapter):
    """Chat completions over the embedded server; leaves tools out unless they are wanted."""

    def __init__(self, base_url: str, model: Path, config: Config) -> None:
        profile = Profile(
            preset="llama.cpp",
            name="Local model",
            base_url=base_url,
            context_window=config.context_window,
            max_tokens=config.max_tokens,
            stream_idle_timeout_ms=config.stream_idle_timeout_ms,
            models={model_id(model): ModelProfile(input_modalities=("text",))},
        )
        super().__init__({config.route: profile})
        self._tools = config.tools
        self._told = False

    @override
    def stream(self, options: GenerateOptions) -> Attempt:
        if options.tools and not self._tools:
            if not self._told:
                self._told = True
                log.info("llm_local.tools_left_out", tools=len(options.tools))
            options = msgspec.structs.replace(options, tools=None)
        return super().stream(options)
