"""Python blocks of the READMEs and docs, and the example files, run offline.

A block marked `python no-run`, and a file that begins with `# no-run`, is compiled only.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *ROOT.glob("packages/*/*/README.md"),
        *ROOT.glob("docs/**/*.md"),
    ]
)
BLOCK = re.compile(
    r"^(?P<indent>[ \t]*)```python(?P<mark>[^\n]*)\n(?P<code>.*?)^(?P=indent)```[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
LIMIT_S = 60


@dataclass(frozen=True)
class Block:
    """One fenced block: where it starts, what stands behind the word python, and its text."""

    page: Path
    line: int
    mark: str
    code: str

    @property
    def label(self) -> str:
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.line}"


def read_blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start()) + 2,
            found["mark"].strip(),
            re.sub(rf"(?m)^{found['indent']}", "", found["code"]),
        )
        for found in BLOCK.finditer(text)
    ]


def read_example(path: Path) -> Block:
    code = path.read_text(encoding="utf-8")
    return Block(path, 1, "no-run" if code.startswith("# no-run") else "", code)


EXAMPLES = [
    pytest.param(read_example(path), id=path.relative_to(ROOT).as_posix())
    for path in sorted(ROOT.glob("docs/examples/**/*.py"))
]
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT).as_posix()}-{number}")
    for page in PAGES
    for number, block in enumerate(read_blocks(page), 1)
]


def clean_environment(home: Path) -> dict[str, str]:
    """What a reader without keys and settings has."""
    kept = {"PATH", "LANG", "LC_ALL", "SYSTEMROOT", "TEMP", "TMP", "VIRTUAL_ENV"}
    environ = {name: value for name, value in os.environ.items() if name in kept}
    return {**environ, "HOME": str(home), "PYTHONUTF8": "1"}


@pytest.mark.parametrize("block", [*BLOCKS, *EXAMPLES])
def test_an_example_runs(block: Block, tmp_path: Path) -> None:
    assert block.mark in {"", "no-run"}, f"{block.label}: unknown mark {block.mark!r}"
    compile("\n" * (block.line - 1) + block.code, block.label, "exec")
    if block.mark == "no-run":
        return
    work = tmp_path / "work"
    work.mkdir()
    script = tmp_path / "example.py"
    script.write_text(block.code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script],
        cwd=work,
        env=clean_environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, f"{block.label}\n{done.stdout}{done.stderr}"


def test_blocks_are_found_with_their_mark_and_indent(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n```python\na = 1\n```\n"
        "- item\n  ```python no-run\n  b = 2\n  ```\n"
        "```py\nsignature()\n```\n",
        encoding="utf-8",
    )
    assert read_blocks(page) == [
        Block(page, 3, "", "a = 1\n"),
        Block(page, 7, "no-run", "b = 2\n"),
    ]
