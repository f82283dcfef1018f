"""The adapter of the embedded model."""

from pathlib import Path

import msgspec
import structlog
from structlog.typing import FilteringBoundLogger
from typing_extensions import override

from dsh_brand import encode_json
from dsh_llm import GenerateOptions
from dsh_llm_http import Exchange
from dsh_llm_openai import Attempt, ModelProfile, OpenAiAdapter, Profile
from dsh_llm_openai.routes import Route

from .config import Config
from .protocol import in_reply_form, reply_format
from .replies import ReplyTranslator
from .server import model_id

log: FilteringBoundLogger = structlog.get_logger(__name__)


class LocalAdapter(OpenAiAdapter):
    """Chat completions over the embedded server.

    Tools are left out unless they are wanted; then the model calls them in replies of a fixed form.
    """

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

    @override
    def exchange(self, options: GenerateOptions, route: Route) -> Exchange:
        if not options.tools:
            return super().exchange(options, route)
        plain = super().exchange(in_reply_form(options), route)
        constraint = encode_json({"response_format": reply_format(options.tools)})
        return msgspec.structs.replace(
            plain,
            body=lambda: _joined(plain.body(), constraint),
            translator=lambda finishes: ReplyTranslator(plain.translator(finishes)),
        )


def _joined(body: bytes, more: bytes) -> bytes:
    """Two JSON objects as one."""
    return body[:-1] + b"," + more[1:]
