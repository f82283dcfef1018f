"""Session store: one JSON Lines file per session, plain or zstd.

The module is a plugin: `ctx.plugin(dsh_session_jsonl, {"root": "~/.dsh/sessions"})`.
"""

from dsh_cordis import Context
from dsh_session_jsonl.config import Config
from dsh_session_jsonl.layout import Compression
from dsh_session_jsonl.service import JsonlPersistence
from dsh_session_jsonl.store import JsonlStore

__all__ = ["Compression", "Config", "JsonlPersistence", "JsonlStore", "apply", "name"]

name = "session-jsonl"


def apply(ctx: Context, config: Config) -> None:
    """Provide `ctx.session_persistence` over the files below `config.root`."""
    JsonlPersistence(ctx, config)
