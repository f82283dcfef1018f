"""The table of recordings keeps working; the tests of `dsh-session-jsonl` judge them one by one."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().with_name("recordings_table.py")
RECORDINGS = Path(__file__).resolve().parents[2] / "shared" / "fixtures" / "upstream-sessions"


@pytest.mark.skipif(not RECORDINGS.exists(), reason="the recordings are not beside this checkout")
def test_S174_S176_S189_every_recording_is_as_told_or_refused_as_told() -> None:
    command = [sys.executable, str(SCRIPT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = [line.split(" | ")[-1].removesuffix(" |") for line in done.stdout.splitlines()[2:-2]]
    assert outcomes
    assert all(text == "as told" or text.startswith("refused: event") for text in outcomes)
