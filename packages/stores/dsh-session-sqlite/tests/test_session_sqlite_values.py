"""What an append accepts comes back from the disk, and listings tell its size."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh_brand import freeze_json
from dsh_session import CheckedLog, RawData, SessionEvent, SessionId, encode_event
from dsh_session_persistence.testing import sample_events, sample_header
from dsh_session_sqlite import SqliteStore

texts = st.text(st.characters(exclude_categories=()))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=8,
)


@settings(max_examples=25, deadline=None)
@given(st.lists(json_values, min_size=1, max_size=4), texts.filter(bool))
def test_S174_S148_any_json_and_any_id_come_back(values: list[object], session_id: str) -> None:
    events = [
        SessionEvent(
            type="acme/thing", seq=seq, time=1, data=RawData(freeze_json(value)), ignorable=True
        )
        for seq, value in enumerate(values)
    ]
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "sessions ?#%20.db")
        log = store.create(sample_header(session_id), 0)
        log.append(events)
        log.close()
        assert list(store.open(SessionId(session_id), "read").read()) == events
        (listed,) = store.list().sessions
        assert listed == store.stat(SessionId(session_id))
        assert listed.header == sample_header(session_id)
        assert listed.event_count == len(events)
        assert listed.size_bytes == sum(len(encode_event(event)) for event in events)


def test_S104_a_reader_follows_the_writer_and_fetches_what_is_new(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    log = store.create(sample_header(), 0)
    log.append(sample_events(4))
    reader = store.open(SessionId("sample"), "read")
    known = reader.read()[3]
    log.append(sample_events(3, start=4))
    assert list(reader.read()) == sample_events(7)
    assert reader.read()[3] is known
    log.close()


def test_a_tilde_leads_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert SqliteStore(Path("~/x/sessions.db")).path == tmp_path / "x" / "sessions.db"


def test_S169_what_is_read_for_resuming_is_known_to_be_checked(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "sessions.db")
    log = store.create(sample_header("sample"), 0)
    log.append(sample_events(2))
    assert not isinstance(log.read(), CheckedLog), "the writer takes what it is given"
    log.close()
    again = store.open(SessionId("sample"), "write")
    read = again.read()
    assert isinstance(read, CheckedLog)
    again.append(sample_events(1, start=2))
    assert not isinstance(again.read(), CheckedLog)
    assert [len(read), len(again.read()), again.end] == [2, 3, 3]
    again.close()
