"""For tests: an in-memory store, sample events, and the suite that every store must pass.

Needs the extra `testing` (pytest).
"""

from dsh_session_persistence.testing.conformance import (
    PersistenceConformance,
    StorePlugin,
    mounted,
)
from dsh_session_persistence.testing.memory import MemoryLogStore, MemoryPersistence
from dsh_session_persistence.testing.samples import sample_events, sample_header

__all__ = [
    "MemoryLogStore",
    "MemoryPersistence",
    "PersistenceConformance",
    "StorePlugin",
    "mounted",
    "sample_events",
    "sample_header",
]
