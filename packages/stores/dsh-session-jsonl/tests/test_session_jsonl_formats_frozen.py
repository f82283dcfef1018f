"""The steps between old formats stand still: nothing of the present format reaches them."""

import ast
import sys
from pathlib import Path

import pytest

from dsh_session_jsonl import formats

ROOT = Path(formats.__file__).parent
ALLOWED = ("dsh_brand", "dsh_session_jsonl.formats")


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module is not None
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.py")), ids=lambda path: path.stem)
def test_S175_no_step_imports_what_the_present_format_changes(path: Path) -> None:
    foreign = {
        name
        for name in imported(path)
        if not name.startswith(ALLOWED) and name.partition(".")[0] not in sys.stdlib_module_names
    }
    assert foreign <= {"msgspec"}
