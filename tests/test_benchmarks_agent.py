"""The benchmarks of agents keep working; what they measure is read by people."""

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "benchmarks"


def rows(script: str, *arguments: str) -> list[list[str]]:
    command = [sys.executable, str(FOLDER / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines[1:]]


def test_each_case_of_the_agents_benchmark_works() -> None:
    cases = (
        "per_turn",
        "per_turn_stored",
        "per_chunk",
        "per_round",
        "creation",
        "cancelling",
        "over_http",
    )
    found = [row[0] for row in rows("agent.py", "--once", *cases)]
    assert found == [
        "a plain turn",
        "a plain turn, stored",
        "a plain turn, flushed before each request",
        "a text delta",
        "a round of one tool call",
        "round 40 against round 20",
        "creating an agent",
        "an agent that did nothing yet",
        "an agent after a turn",
        "from cancel to idle, in a reply",
        "a turn over HTTP, at turn 10",
    ]
