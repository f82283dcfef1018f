"""`ctx.session_persistence` over JSON Lines files. Upstream: packages/session/session-jsonl."""

from dsh_cordis import Context
from dsh_session_jsonl.config import Config
from dsh_session_jsonl.store import JsonlStore
from dsh_session_persistence import SessionPersistence


class JsonlPersistence(SessionPersistence):
    """Keeps each session in one append-only file below `root`.

    A batch is on the disk when `append` returns. Between processes a lock file in the session's
    folder admits one writer; readers never wait.
    """

    def __init__(self, ctx: Context, config: Config) -> None:
        """Look at the root and claim the key; nothing is created before the first write.

        Raises:
            SessionStorageError: The root cannot be a readable folder, or zstd is not installed.
        """
        store = JsonlStore(config.root, config.compression)
        super().__init__(ctx, store)
        self.root = store.root
        """The folder of all session logs, resolved."""
