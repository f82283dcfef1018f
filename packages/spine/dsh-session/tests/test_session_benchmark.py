"""The benchmark of sessions keeps working; what it measures is read by people."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[4] / "tests" / "benchmarks" / "session.py"


def test_S172_each_row_of_the_benchmark_works(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--quick"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={"BENCH_DIR": str(tmp_path)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 2 + 15
