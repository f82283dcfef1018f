"""What the pages about capabilities promise: tests that exist, and what a model really gets."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import dsh_approval
import dsh_fs
import dsh_fs.search_tool
import dsh_shell
import dsh_shell.bash_tool
import dsh_todo
from dsh_brand import encode
from dsh_cordis import ConfigError, Context
from dsh_llm import LlmService, TextBlock, estimate_block
from dsh_session import SessionStore
from dsh_session_projection import SessionProjectionRegistry
from dsh_tools.testing import tool_bench

ROOT = Path(__file__).resolve().parent.parent
SECURITY = ROOT / "docs" / "security.md"
CITED = re.compile(r"`(test_\w+)`")
DEFINED = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def defined_tests() -> set[str]:
    files = [*ROOT.glob("packages/*/*/tests/**/*.py"), *ROOT.glob("tests/*.py")]
    return {name for path in files for name in DEFINED.findall(path.read_text(encoding="utf-8"))}


def test_every_test_that_the_security_page_names_exists() -> None:
    cited = CITED.findall(SECURITY.read_text(encoding="utf-8"))
    assert len(cited) > 40
    assert sorted(set(cited) - defined_tests()) == []


def test_every_attack_in_the_tables_names_its_test() -> None:
    tables = [
        block.splitlines()
        for block in SECURITY.read_text(encoding="utf-8").split("\n\n")
        if block.startswith("| attack ")
    ]
    attacks = [row for _, _, *rows in tables for row in rows]
    assert len(attacks) > 50
    assert [row for row in attacks if "`test_" not in row.split(" | ")[-1]] == []


# ---- what the model gets ----------------------------------------------------------------------

FILES = ("read", "write", "edit", "glob", "grep")
SHELL = ("bash", "job_output", "job_list", "job_kill")


def attachments(ctx: Context) -> None:
    ctx.provide("attachments", object())


@pytest.mark.parametrize(
    ("dist", "words", "names"),
    [
        ("dsh-fs", r"Five tools \(about (\d+) tokens of schemas\)", FILES),
        (
            "dsh-fs",
            r"five short sections of the prompt \(about (\d+)\)",
            ["tool:read", "tool:grep"],
        ),
        ("dsh-fs", r"`read_image` \(about (\d+) tokens of schema", ["read_image"]),
        ("dsh-shell", r"Four tools, about (\d+) tokens of schemas", SHELL),
        ("dsh-shell", r"Two sections .*, about (\d+) tokens", ["tool:bash", "tool:jobs"]),
        ("dsh-todo", r"one tool, about (\d+) tokens", ["todo_write"]),
        ("dsh-approval", r"runtime-context message \(about (\d+) tokens", ["approval:policy"]),
    ],
)
async def test_the_readmes_tell_how_many_tokens_the_model_gets(
    tmp_path: Path, dist: str, words: str, names: list[str]
) -> None:
    readme = ROOT / "packages" / "capabilities" / dist / "README.md"
    told = re.search(words, readme.read_text(encoding="utf-8"))
    assert told is not None
    given = await texts_for_the_model(tmp_path)
    if names[0] == "tool:read":
        names = [name for name in given if name.startswith("tool:")][1:-1]
        assert len(names) == len(FILES)
    real = sum(estimate_block(TextBlock(given[name])) for name in names)
    assert real == pytest.approx(int(told[1]), rel=0.1)


async def texts_for_the_model(root: Path) -> dict[str, str]:
    """Schemas as JSON, sections and contexts, by name, in the order of the prompt."""
    async with tool_bench() as tools:
        await tools.ctx.plugin(SessionStore)
        await tools.ctx.plugin(SessionProjectionRegistry)
        await tools.ctx.plugin(LlmService)
        await tools.ctx.plugin(attachments)
        await tools.ctx.plugin(dsh_fs, {"root": root})
        await tools.ctx.plugin(dsh_shell, {"spill_root": root / "s"})
        await tools.ctx.plugin(dsh_todo, {"allow_parallel_in_progress": False})
        await tools.ctx.plugin(dsh_approval, {})
        await tools.ctx.settled()
        prompt = await tools.ctx.system_prompt.assemble(None)
        given = {each.name: each.text for each in (*prompt.sections, *prompt.contexts)}
        return given | {each.name: encode(each).decode() for each in tools.tools.schemas()}


@pytest.mark.parametrize("name", ["dsh_fs", "dsh_shell", "dsh_todo", "dsh_approval"])
def test_importing_a_capability_loads_no_pydantic(name: str) -> None:
    code = f"import sys, {name}; print('pydantic' in sys.modules, {name}.Config.__name__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "Config"]


@pytest.mark.parametrize("part", [dsh_fs.search_tool, dsh_shell.bash_tool])
async def test_a_part_that_is_mounted_alone_checks_its_configuration(part: ModuleType) -> None:
    async with tool_bench() as tools:
        await tools.ctx.plugin(dsh_fs.FsService)
        await tools.ctx.plugin(dsh_shell.SubprocessRuntime)
        async with tools.ctx.plugin(part, {}):
            await tools.ctx.settled()
            assert tools.tools.names() != []
        with pytest.raises(ConfigError):
            await tools.ctx.plugin(part, {"no": "such field"})
