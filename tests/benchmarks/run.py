"""Ratios measured in one run: `python tests/benchmarks/run.py [--once] [NAME ...]`.

A benchmark is a module `bench_<name>.py` beside this one. It has `BASELINE`, the name of the case
that counts as 1.0, and `cases()`, which returns the cases by name: functions without arguments
that do the same amount of work. Cases are interleaved, so that a busy machine slows all of them,
and the best round counts. `--once` measures nothing: it calls each case once, to see that it works.
"""

import gc
import importlib.util
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol, cast

ROUNDS = 15
MIN_ROUND_S = 0.02

Case = Callable[[], object]


class Benchmark(Protocol):
    """What a benchmark module holds."""

    BASELINE: str

    def cases(self) -> Mapping[str, Case]:
        """The cases to compare, by name."""
        ...


def load(path: Path) -> Benchmark:
    """Import a benchmark module by its file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Benchmark", module)  # a module fits a Protocol, but nothing checks a loaded one


def seconds(case: Case, repeats: int) -> float:
    """Seconds for `repeats` calls, without collections of garbage in between."""
    gc.collect()
    gc.disable()
    try:
        started = time.perf_counter()
        for _ in range(repeats):
            case()
        return time.perf_counter() - started
    finally:
        gc.enable()


def repeats_for(case: Case) -> int:
    """How many calls make a round long enough for the clock."""
    repeats = 1
    while seconds(case, repeats) < MIN_ROUND_S:
        repeats *= 2
    return repeats


def measure(cases: Mapping[str, Case], rounds: int = ROUNDS) -> dict[str, float]:
    """Best seconds per call of each case."""
    repeats = {name: repeats_for(case) for name, case in cases.items()}
    best = dict.fromkeys(cases, float("inf"))
    for _ in range(rounds):
        for name, case in cases.items():
            best[name] = min(best[name], seconds(case, repeats[name]) / repeats[name])
    return best


def report(name: str, baseline: str, best: Mapping[str, float]) -> str:
    """A Markdown table of the ratios."""
    rows = [f"| {case} | {took / best[baseline]:.2f} |" for case, took in best.items()]
    head = [f"### {name}", "", f"| case | time / time of {baseline} |", "|---|---|"]
    return "\n".join([*head, *rows, ""])


def try_once(benchmark: Benchmark) -> str:
    """Call each case once."""
    cases = benchmark.cases()
    cases[benchmark.BASELINE]
    for case in cases.values():
        case()
    return f"{len(cases)} cases work"


def main(arguments: list[str]) -> None:
    """Run the named benchmarks, or all."""
    names = [name for name in arguments if name != "--once"]
    found = {
        path.stem.removeprefix("bench_"): path
        for path in sorted(Path(__file__).parent.glob("bench_*.py"))
    }
    unknown = [name for name in names if name not in found]
    if unknown:
        raise SystemExit(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(found)}")
    for name in names or found:
        benchmark = load(found[name])
        if "--once" in arguments:
            text = f"{name}: {try_once(benchmark)}"
        else:
            text = report(name, benchmark.BASELINE, measure(benchmark.cases()))
        sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
