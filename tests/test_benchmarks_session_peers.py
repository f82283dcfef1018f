"""The comparison of session stores keeps working, with peers or without them."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "benchmarks" / "session_peers.py"
STORES = ("dsh-session-jsonl, plain", "dsh-session-jsonl, zstd", "dsh-session-sqlite")


def test_the_comparison_of_session_stores_works_for_a_few_turns() -> None:
    command = [sys.executable, str(SCRIPT), "3"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    assert rows[0][0] == "| 3 turns"
    assert rows[1][:3] == ["| JSON lines by hand", "1.00", "1.0"]
    assert [row[0].removeprefix("| ") for row in rows[2:5]] == list(STORES)
    assert all(float(row[1]) > 0 and float(row[2]) > 0 for row in rows[2:5])
    assert {row[0].removeprefix("| ").split(",")[0] for row in rows[5:]} == {
        "OpenAI Agents SDK",
        "LangGraph",
    }
