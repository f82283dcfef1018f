"""The benchmark of tools keeps working; what it measures is read by people."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "benchmarks" / "tools.py"


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), "--once", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_each_case_of_the_benchmark_of_tools_works() -> None:
    done = _run()
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == 2 + 5 + 6 + 1 + 2


def test_a_part_that_there_is_not_is_refused() -> None:
    assert "no such part: nothing" in _run("nothing").stderr
