"""The benchmarks keep working; what they measure is read by people."""

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent / "benchmarks"
NAMES = sorted(path.stem.removeprefix("bench_") for path in FOLDER.glob("bench_*.py"))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", NAMES)
def test_each_case_of_a_benchmark_works(name: str) -> None:
    done = run("--once", name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{name}: ")


def test_an_unknown_benchmark_is_refused_with_those_there_are() -> None:
    done = run("nothing")
    assert done.returncode == 1
    assert f"no such benchmark: nothing; there are: {', '.join(NAMES)}" in done.stderr
