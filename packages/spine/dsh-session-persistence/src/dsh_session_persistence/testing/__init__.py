"""For tests: an in-memory store, sample events, and the suite that every store must pass.

Needs the extra `testing` (pytest).
"""

from dsh_session_persistence.testing.conformance import PersistenceConformance, mounted
from dsh_session_persistence.testing.limits import files_limited_to
from dsh_session_persistence.testing.memory import MemoryLogStore, MemoryPersistence
from dsh_session_persistence.testing.samples import sample_events, sample_header
from dsh_session_persistence.testing.writer import StorePlugin, writer_process

__all__ = [
    "MemoryLogStore",
    "MemoryPersistence",
    "PersistenceConformance",
    "StorePlugin",
    "files_limited_to",
    "mounted",
    "sample_events",
    "sample_header",
    "writer_process",
]
