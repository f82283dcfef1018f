"""The kernel's own benchmark keeps working; what it measures is read by people."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent / "benchmarks" / "kernel.py"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_each_case_of_the_kernel_benchmark_works(backend: str) -> None:
    command = [sys.executable, str(SCRIPT), "--once", "--backend", backend]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "kernel: every case works\n"
