"""What a turn costs in agents of others: `python tests/benchmarks/peers/compare.py [--once] [PART ...]`.

The same questions, answers and tool go through a loop by hand, through our spine and through the
agents of others (`others.py`); over HTTP to one mock server, and in the process where the
model is a script. Each side runs in a process of its own, so that nobody pays for what another one
imports and leaves to the collector of garbage. CPU time of that process counts, and the best of
interleaved rounds, with the ratio to the loop by hand. A conversation has 200 turns; the medians of
the first 20 and of the last 20 are shown. A peer that is not installed has an empty row, and so has
one that cannot do a part. The parts are `http`, `process` and `creation`; `--once` makes all small.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
ONCE = "--once" in sys.argv
ROUNDS = 1 if ONCE else 3


@contextmanager
def running_server() -> Iterator[str]:
    """The base URL of a server that runs."""
    command = [sys.executable, "-m", "tests.benchmarks.peers.serve"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


Figures = dict[str, float]


def measured(*arguments: str) -> object:
    """What `measure.py` finds."""
    command = [sys.executable, "-m", "tests.benchmarks.peers.measure", *arguments]
    if ONCE:
        command.append("--once")
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    done = subprocess.run(command, cwd=ROOT, env=kept, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)} failed:\n{done.stderr}")
    found: object = json.loads(done.stdout.splitlines()[-1])
    return found


def best_of(case: str, *arguments: str) -> dict[str, Figures | None]:
    """The best figures of each side, the sides interleaved."""
    sides = measured()
    assert isinstance(sides, dict)
    best: dict[str, Figures | None] = dict.fromkeys(sides)
    for _ in range(ROUNDS):
        for name in (name for name, installed in sides.items() if installed):
            found = measured(name, case, *arguments)
            if isinstance(found, dict):
                known = best[name] or found
                best[name] = {key: min(known[key], found[key]) for key in found}
    return best


class Column(NamedTuple):
    """One figure of a table."""

    title: str
    key: str
    show: Callable[[float], str]


def seconds(value: float) -> str:
    """With three digits."""
    return f"{value * 1e3:.3g} ms" if value >= 1e-3 else f"{value * 1e6:.3g} us"


def kibibytes(size: float) -> str:
    """With three digits."""
    return f"{size / 1024:.3g} KiB"


def table(title: str, columns: Sequence[Column], best: Mapping[str, Figures | None]) -> str:
    """The figures and their ratios to the first row."""
    heads = "".join(f" {column.title} | ratio |" for column in columns)
    lines = [f"| {title} |{heads}", "|---|" + "---|---|" * len(columns)]
    first = next(iter(best.values()))
    assert first is not None
    for name, found in best.items():
        cells = "".join(
            f" {column.show(found[column.key])} | {found[column.key] / first[column.key]:.2f} |"
            if found
            else " - | - |"
            for column in columns
        )
        lines.append(f"| {name} |{cells}")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Everything, or the parts that are named."""
    parts = [name for name in sys.argv[1:] if not name.startswith("-")]
    turns = [Column("first turns", "early", seconds), Column("last turns", "late", seconds)]
    if not parts or "http" in parts:
        with running_server() as url:
            say(table("over HTTP, CPU", turns, best_of("http", url)))
    if not parts or "process" in parts:
        columns = [*turns, Column("tool round", "round", seconds)]
        say(table("in process, CPU", columns, best_of("process")))
    if not parts or "creation" in parts:
        columns = [
            Column("create", "create", seconds),
            Column("idle", "idle", kibibytes),
            Column("after a turn", "used", kibibytes),
        ]
        say(table("many agents, each", columns, best_of("creation")))


def say(text: str) -> None:
    """Print at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
