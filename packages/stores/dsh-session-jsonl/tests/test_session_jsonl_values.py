"""What an append accepts comes back from the disk."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh_brand import freeze_json
from dsh_session import RawData, SessionEvent, SessionId
from dsh_session_jsonl import Compression, JsonlStore
from dsh_session_persistence.testing import sample_header

ID = SessionId("sample")

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: str(x) != "-0.0")
    | st.text(st.characters(exclude_categories=()))
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=8,
)


def raw_event(seq: int, value: object) -> SessionEvent:
    data = RawData(freeze_json(value))
    return SessionEvent(type="acme/thing", seq=seq, time=1, data=data, ignorable=True)


def stored_and_read(root: Path, compression: Compression, events: list[SessionEvent]) -> None:
    store = JsonlStore(root, compression)
    log = store.create(sample_header(), 0)
    log.append(events)
    log.close()
    assert list(store.open(ID, "read").read()) == events


@settings(max_examples=50, deadline=None)
@given(st.lists(json_values, min_size=1, max_size=4))
def test_S26_S29_any_json_survives_the_disk(
    tmp_path_factory: pytest.TempPathFactory, values: list[object]
) -> None:
    events = [raw_event(seq, value) for seq, value in enumerate(values)]
    stored_and_read(tmp_path_factory.mktemp("root"), "none", events)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_S27_3000_levels_survive_the_disk(tmp_path: Path, compression: Compression) -> None:
    value: object = "\ud800"
    for level in range(3_000):
        value = [value] if level % 2 else {"a": value}
    event = raw_event(0, value)
    store = JsonlStore(tmp_path, compression)
    log = store.create(sample_header(), 0)
    log.append([event])
    log.close()
    copy = JsonlStore(tmp_path / "copy", compression).create(sample_header(), 0)
    copy.append(list(store.open(ID, "read").read()))
    copy.close()
    assert log.path is not None
    assert copy.path is not None
    assert log.path.read_bytes() == copy.path.read_bytes()
