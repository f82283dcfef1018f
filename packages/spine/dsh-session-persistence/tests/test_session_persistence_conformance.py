"""The reference store passes what every store passes."""

import pytest
from typing_extensions import override

from dsh_session_persistence.testing import (
    MemoryLogStore,
    MemoryPersistence,
    PersistenceConformance,
    StorePlugin,
)


class TestMemoryPersistence(PersistenceConformance):
    @pytest.fixture
    @override
    def store_plugin(self) -> StorePlugin:
        return MemoryPersistence, MemoryLogStore()
