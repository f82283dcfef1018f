"""The comparisons of streamed answers keep working, with peers or without them."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def rows(module: str) -> list[list[str]]:
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", "--once"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    return [line.strip("| ").split(" | ") for line in lines]


def test_each_case_of_the_adapters_works() -> None:
    subjects = {row[0] for row in rows("llm")}
    assert {
        "chat completions, default",
        "Messages, default",
        "adapter, default",
        "1,000 at once",
        "Messages",
    } <= subjects


def test_the_comparison_with_other_clients_works() -> None:
    found = {row[0]: row[1:] for row in rows("llm_peers")}
    assert found["httpx lines + msgspec"][:3] == ["1.00", "1.00", "1.00"]
    assert all(float(ratio) > 0 for ratio in found["dsh-llm-openai"][:3])
    assert {"openai", "langchain-openai", "pydantic-ai"} <= set(found)
