"""System prompt assembly from sections, contexts, variables and tool schemas.

`ctx.system_prompt` (`SystemPrompt`) collects what plugins register and assembles it for one agent;
`render_prompt` and `runtime_context_message` turn an assembly into what the model reads.
"""

from typing import TYPE_CHECKING

from .errors import (
    CompletePromptError,
    MalformedVariableError,
    MissingVariableError,
    PromptRegistrationError,
    PromptVariableError,
    SystemPromptError,
    ToolOrderError,
    UnknownVariableError,
)
from .events import SystemPromptAssemble, SystemPromptChange
from .interpolation import interpolate
from .positions import CONTEXT_ORDERS, SECTION_ORDERS, context_order, section_order
from .prefix import PrefixChange, PromptPrefix, compare_prefixes, prefix_of, tool_bytes
from .rendering import (
    cleared_context_message,
    render_contexts,
    render_prompt,
    runtime_context_message,
)
from .service import SystemPrompt
from .tool_order import UNLISTED, order_tools
from .types import (
    AssemblyContext,
    PromptAssembly,
    PromptContext,
    PromptSection,
    RenderedContexts,
    TextProvider,
    ToolsContribution,
    ToolsProvider,
)

if TYPE_CHECKING:  # pydantic is loaded when somebody mounts or configures prompts, not before
    from .config import Config as Config


def __getattr__(attribute: str) -> object:
    if attribute == "Config":
        from .config import Config

        return Config
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


__all__ = [
    "CONTEXT_ORDERS",
    "SECTION_ORDERS",
    "UNLISTED",
    "AssemblyContext",
    "CompletePromptError",
    "Config",
    "MalformedVariableError",
    "MissingVariableError",
    "PrefixChange",
    "PromptAssembly",
    "PromptContext",
    "PromptPrefix",
    "PromptRegistrationError",
    "PromptSection",
    "PromptVariableError",
    "RenderedContexts",
    "SystemPrompt",
    "SystemPromptAssemble",
    "SystemPromptChange",
    "SystemPromptError",
    "TextProvider",
    "ToolOrderError",
    "ToolsContribution",
    "ToolsProvider",
    "UnknownVariableError",
    "cleared_context_message",
    "compare_prefixes",
    "context_order",
    "interpolate",
    "order_tools",
    "prefix_of",
    "render_contexts",
    "render_prompt",
    "runtime_context_message",
    "section_order",
    "tool_bytes",
]
