"""The page for people who write other tools shows a file that is one."""

import hashlib
import re
from pathlib import Path

from dsh_session import Session, SessionId, check_log, decode_stored_event, header_from_json
from dsh_session.testing import WORKED_EXAMPLE
from dsh_session_jsonl import JsonlStore
from dsh_session_jsonl.layout import log_name, project_segment, session_segment

PAGE = Path(__file__).resolve().parents[4] / "docs" / "session-format.md"
TEXT = PAGE.read_text(encoding="utf-8")
FILE = "".join(re.findall(r"^```jsonl\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)).encode()


def python_block() -> dict[str, object]:
    """What the page's reader in Python defines."""
    (code,) = re.findall(r"^```python\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_S147_the_file_on_the_page_is_the_worked_example() -> None:
    assert FILE == WORKED_EXAMPLE
    assert f"{len(FILE)} bytes" in TEXT
    assert hashlib.sha256(FILE).hexdigest() in TEXT


def test_S147_the_file_on_the_page_opens_where_the_page_says(tmp_path: Path) -> None:
    place = Path(project_segment("/srv/demo app"), session_segment("run/7"), log_name(4, "none"))
    assert str(place) in TEXT
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_bytes(FILE)
    log = JsonlStore(tmp_path, "none").open(SessionId("run/7"), "read")
    events = log.read()
    check_log(log.header, events, 0)
    session = Session.from_restore(log.header.id, events, log.header)
    assert list(session.surface.nodes) == [2, 11]
    assert [message.id for message in session.derive_messages()] == ["k"]
    assert events[11].source_event_seqs == (3, 5, 6, 7)


def test_the_reader_on_the_page_agrees_with_ours(tmp_path: Path) -> None:
    names = python_block()
    path = tmp_path / "session.v4.jsonl"
    path.write_bytes(FILE + b'{"type":"turn/st')
    header, events = names["read_log"](path)  # type: ignore[operator]  # defined by the page
    assert header_from_json({key: header[key] for key in header if key != "type"}).id == "run/7"
    ours = [decode_stored_event(line) for line in FILE.splitlines()[1:]]
    assert [event["seq"] for event in events] == [event.seq for event in ours]
    assert names["surface"](events) == [2, 11]  # type: ignore[operator]  # as above


def test_the_page_names_every_surface_type_and_end_reason() -> None:
    for name in ("system", "developer", "user", "assistant"):
        assert f"`{name}/message`" in TEXT
    for kind in ("completed", "aborted", "blocked", "error", "max-tokens", "interrupted", "forked"):
        assert f"`{kind}`" in TEXT
