"""Logs of the reference harness load here, and what we write of them is the same."""

import json
from pathlib import Path

import pytest

from dsh_session import SessionId
from dsh_session_jsonl import JsonlStore
from dsh_session_jsonl.layout import project_segment, session_segment

RECORDINGS = Path(__file__).parents[5] / "shared" / "fixtures" / "upstream-sessions" / "newest"
CWD = "/srv/demo"
FILES = sorted(RECORDINGS.glob("*/*.v4.jsonl"))


def completed(recording: Path) -> list[dict[str, object]]:
    """The rows of a recording with what was scrubbed: workspace, seqs, times, tool definitions."""
    text = recording.read_text("utf-8").replace("{{cwd}}", CWD)
    rows: list[dict[str, object]] = [json.loads(line) for line in text.splitlines()]
    for seq, row in enumerate(rows[1:]):
        rows[seq + 1] = {"type": row["type"], "seq": seq, "time": 1_789_000_000_000 + seq} | row
        _define_tools(row["data"])
    return rows


def _define_tools(data: object) -> None:
    header = data.get("header") if isinstance(data, dict) else None
    if isinstance(header, dict) and isinstance(header.get("tools"), list):
        header["tools"] = [
            {"name": name, "description": f"The tool {name}.", "parameters": {"type": "object"}}
            for name in header["tools"]
        ]


@pytest.mark.skipif(not FILES, reason="the recordings are not beside this checkout")
@pytest.mark.parametrize("recording", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_S174_a_recorded_log_is_read_and_written_without_loss(
    recording: Path, tmp_path: Path
) -> None:
    rows = completed(recording)
    session_id = SessionId(str(rows[0]["id"]))
    folder = tmp_path / project_segment(CWD) / session_segment(session_id)
    folder.mkdir(parents=True)
    path = folder / "session.v4.jsonl"
    lines = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in rows]
    path.write_text("".join(lines), "utf-8")

    log = JsonlStore(tmp_path, "none").open(session_id, "read")
    events = log.read()
    assert len(events) == len(rows) - 1

    copy = JsonlStore(tmp_path / "copy", "none").create(log.header, log.inherited_event_count)
    copy.append(events)
    copy.close()
    assert copy.path is not None
    written = [json.loads(line) for line in copy.path.read_text("utf-8").splitlines()]
    assert written == rows
