"""Whatever fault strikes, in whatever store, the log survives and the session goes on.

`python tests/fault_matrix.py` prints the same as a table.
"""

import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, cast

import pytest

MATRIX = Path(__file__).resolve().with_name("fault_matrix.py")

if sys.platform == "win32":
    pytest.skip("processes are forked and killed by signals here", allow_module_level=True)


class Outcome(Protocol):
    points: int
    failures: list[str]


class Matrix(Protocol):
    """What these tests use of the module beside this one."""

    FAULTS: Mapping[str, object]
    STORES: Sequence[str]

    def Bench(self) -> "Bench": ...

    def run_fault(self, bench: object, name: str, kind: str) -> Outcome: ...


class Bench(Protocol):
    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...


def load() -> Matrix:
    spec = importlib.util.spec_from_file_location(MATRIX.stem, MATRIX)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[MATRIX.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Matrix", module)  # a module fits a Protocol, but nothing checks a loaded one


matrix = load()


@pytest.fixture(scope="module")
def bench() -> Iterator[object]:
    with matrix.Bench() as bench:
        yield bench


@pytest.mark.parametrize("kind", matrix.STORES)
@pytest.mark.parametrize("fault", matrix.FAULTS)
def test_S151_A86_a_fault_leaves_a_log_that_opens_and_goes_on(
    bench: object, fault: str, kind: str
) -> None:
    outcome = matrix.run_fault(bench, fault, kind)
    assert outcome.points > 0
    assert outcome.failures == []
