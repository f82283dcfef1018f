"""Session store: all sessions in one SQLite database.

The module is a plugin: `ctx.plugin(dsh_session_sqlite, {"path": "~/.dsh/sessions.db"})`.
"""

from dsh_cordis import Context
from dsh_session_sqlite.config import Config
from dsh_session_sqlite.service import SqlitePersistence
from dsh_session_sqlite.store import SqliteStore

__all__ = ["Config", "SqlitePersistence", "SqliteStore", "apply", "name"]

name = "session-sqlite"


def apply(ctx: Context, config: Config) -> None:
    """Provide `ctx.session_persistence` over the database at `config.path`."""
    SqlitePersistence(ctx, config)
