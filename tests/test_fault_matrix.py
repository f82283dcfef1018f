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


def test_the_page_about_safety_has_a_row_for_every_fault_and_a_cell_for_every_store() -> None:
    page = MATRIX.parents[1] / "docs" / "session-safety.md"
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    table = rows[next(index for index, row in enumerate(rows) if row[0] == "fault") :]
    assert table[0][1:] == list(matrix.STORES)
    assert [row[0] for row in table[2:]] == list(matrix.FAULTS)
    assert all(
        cell.split(" of ")[0] == cell.split(" of ")[1] for row in table[2:] for cell in row[1:]
    )
