"""The comparison with agents of others keeps working, with peers or without them."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent / "benchmarks" / "peers" / "compare.py"
NAMES = ["by hand", "ours", "ours, each event on the disk"]


def test_the_comparison_of_agents_works_for_a_few_turns() -> None:
    command = [sys.executable, str(SCRIPT), "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    tables = [text.splitlines() for text in done.stdout.strip().split("\n\n")]
    assert len(tables) == 3
    for lines in tables:
        _, _, hand, *ours = [line.strip("| ").split(" | ") for line in lines][:5]
        assert [row[0] for row in (hand, *ours)] == NAMES
        assert set(hand[2::2]) == {"1.00"}
        assert all(len(row) == len(hand) for row in ours)
        assert all(float(ratio) > 0 for row in ours for ratio in row[2::2])
