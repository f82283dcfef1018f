"""The SQLite store passes what every store passes."""

from pathlib import Path

import pytest
from typing_extensions import override

import dsh_session_sqlite
from dsh_session_persistence.testing import PersistenceConformance, StorePlugin


class TestSqlitePersistence(PersistenceConformance):
    @pytest.fixture
    @override
    def store_plugin(self, tmp_path: Path) -> StorePlugin:
        return dsh_session_sqlite, {"path": str(tmp_path / "sessions.db")}
