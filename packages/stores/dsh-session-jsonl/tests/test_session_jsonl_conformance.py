"""The JSONL store passes what every store passes, in both encodings."""

from pathlib import Path

import pytest
from typing_extensions import override

import dsh_session_jsonl
from dsh_session_persistence.testing import PersistenceConformance, StorePlugin


@pytest.fixture(params=["none", "zstd"])
def compression(request: pytest.FixtureRequest) -> str:
    value: str = request.param
    return value


class TestJsonlPersistence(PersistenceConformance):
    @pytest.fixture
    @override
    def store_plugin(self, tmp_path: Path, compression: str) -> StorePlugin:
        return dsh_session_jsonl, {"root": str(tmp_path), "compression": compression}
