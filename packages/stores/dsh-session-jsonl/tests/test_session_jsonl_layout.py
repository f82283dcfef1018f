"""Where logs lie: project and session folders, file names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_session_jsonl.layout import (
    LogName,
    log_name,
    parse_log_name,
    project_segment,
    session_segment,
)

any_text = st.text(st.characters(exclude_categories=()))


@pytest.mark.parametrize(
    ("cwd", "segment"),
    [
        (None, "_no-cwd"),
        ("/srv/demo app", "--srv-demo~0020app--"),
        ("/", "--root--"),
        ("//", "--root--"),
        ("C:\\Users\\a", "--C-Users-a--"),
        ("/a//b/", "--a-b---"),
        ("/-a", "--a--"),
        ("/ä😀", "--~00E4~D83D~DE00--"),
        ("/" + "x" * 300, "--" + "x" * 251 + "--"),
    ],
)
def test_S135_a_workspace_names_its_folder(cwd: str | None, segment: str) -> None:
    assert project_segment(cwd) == segment


@pytest.mark.parametrize(
    ("session_id", "segment"),
    [
        ("run/7", "run~002F7"),
        (".", "~002E"),
        ("..", "~002E~002E"),
        ("...", "..."),
        ("a~b", "a~007Eb"),
        ("\ud800", "~D800"),
        ("session-1", "session-1"),
    ],
)
def test_S135_an_id_names_its_folder(session_id: str, segment: str) -> None:
    assert session_segment(session_id) == segment


@pytest.mark.parametrize("session_id", ["", "x" * 256, "ä" * 52])
def test_S135_an_impossible_id_raises(session_id: str) -> None:
    with pytest.raises(ValueError, match="session id"):
        session_segment(session_id)


@given(any_text.filter(lambda text: 0 < len(text) < 20), any_text.filter(lambda t: 0 < len(t) < 20))
def test_S135_different_ids_never_share_a_folder(one: str, other: str) -> None:
    assert (session_segment(one) == session_segment(other)) == (one == other)
    assert "/" not in session_segment(one)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("session.jsonl", LogName(0, "none")),
        ("session.jsonl.zstd", LogName(0, "zstd")),
        ("session.v4.jsonl", LogName(4, "none")),
        ("session.v12.jsonl.zstd", LogName(12, "zstd")),
        ("session.v0.jsonl", None),
        ("session.v04.jsonl", None),
        ("session.V4.jsonl", None),
        ("session.v4.jsonl.bak", None),
        ("session.v4.jsonl\n", None),
        ("session.v\u0664.jsonl", None),
        ("session.lock", None),
    ],
)
def test_S136_a_file_name_says_version_and_encoding(name: str, parsed: LogName | None) -> None:
    assert parse_log_name(name) == parsed
    if parsed is not None:
        assert log_name(*parsed) == name
