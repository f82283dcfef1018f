"""A small embedded model served by llama.cpp on loopback.

The package itself is the plugin: `ctx.plugin(dsh_llm_local)` gives the route `local`.
"""

from .adapter import LocalAdapter
from .config import Config
from .errors import LocalModelError, ModelNotFoundError, ModelUnusableError
from .models import MODEL_VARIABLE, bundled_model, find_model
from .plugin import apply, name
from .server import LocalServer

__all__ = [
    "MODEL_VARIABLE",
    "Config",
    "LocalAdapter",
    "LocalModelError",
    "LocalServer",
    "ModelNotFoundError",
    "ModelUnusableError",
    "apply",
    "bundled_model",
    "find_model",
    "name",
]
