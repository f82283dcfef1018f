"""`ctx.session_persistence` over one SQLite database. Upstream: none; the schema is our own."""

from dsh_cordis import Context
from dsh_session_persistence import SessionPersistence
from dsh_session_sqlite.config import Config
from dsh_session_sqlite.store import SqliteStore


class SqlitePersistence(SessionPersistence):
    """Keeps all sessions in the one database at `path`.

    A batch is on the disk when `append` returns. Between processes a lock file per open session
    admits one writer; readers never wait.
    """

    def __init__(self, ctx: Context, config: Config) -> None:
        """Look at the file and claim the key; nothing is created before the first write.

        Raises:
            SessionStorageError: The path cannot be a session database, or holds something else.
            SessionFormatUnsupportedError: A newer build made the database.
        """
        store = SqliteStore(config.path)
        super().__init__(ctx, store)
        self.path = store.path
        """The database, resolved."""
