"""The file tools beside the sandbox service of `dsh-shell`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import dsh_fs
from dsh_fs import texts
from dsh_fs.testing import FileBench, file_bench
from dsh_fs.tools import GovernsFiles
from dsh_shell import Sandbox, SandboxConfig
from dsh_tools.testing import code_of, text_of, tool_bench


@asynccontextmanager
async def bench(root: Path, mode: str) -> AsyncIterator[FileBench]:
    async with file_bench(root, require_read=False) as b:
        await b.tools.ctx.plugin(Sandbox, SandboxConfig.model_validate({"mode": mode}))
        await b.tools.ctx.settled()
        yield b


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The folder of this test lies in that for temporary files, which may be changed as well.
    (tmp_path / "w").mkdir()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "w/f").write_text("old", encoding="utf-8")
    (tmp_path / "w/out").symlink_to(tmp_path)
    monkeypatch.setattr(
        "dsh_shell._confining.SHARED_FOLDERS", (str(tmp_path / "tmp"),), raising=True
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path / "w"


async def test_C58_read_only_refuses_every_change_and_no_reading(root: Path) -> None:
    async with bench(root, "read-only") as b:
        assert "1: old" in text_of(await b.run("read", file_path="f"))
        for result in (
            await b.run("write", file_path="f", content="new"),
            await b.run("write", file_path="g", content="new"),
            await b.run("edit", file_path="f", old_string="old", new_string="new"),
        ):
            assert code_of(result) == "FS_SANDBOX_DENIED"
            assert texts.DENIED.format(mode="read-only") in text_of(result)
    assert (root / "f").read_text("utf-8") == "old"
    assert not (root / "g").exists()


async def test_C58_workspace_write_by_real_paths(root: Path) -> None:
    async with bench(root, "workspace-write") as b:
        for path in ("f", "new/deep/f", str(root.parent / "tmp/f")):
            assert code_of(await b.run("write", file_path=path, content="new")) is None
        for path in ("../g", "out/g", str(root.parent / "g"), str(root) + "x"):
            result = await b.run("write", file_path=path, content="new")
            assert code_of(result) == "FS_SANDBOX_DENIED", path
        b.tools.ctx.sandbox.set_mode(b.agent, "danger-full-access")
        assert code_of(await b.run("write", file_path="../g", content="new")) is None


async def test_C30_C60_the_parameters_come_and_go_with_the_sandbox(root: Path) -> None:
    async with tool_bench() as tools:

        def offered() -> set[str]:
            return {
                schema.name
                for schema in tools.tools.schemas()
                if "sandbox_permissions" in str(schema.parameters)
            }

        async with tools.ctx.plugin(dsh_fs, {"root": root}):
            await tools.ctx.settled()
            assert offered() == set()
            result = await tools.run("write", file_path="g", content="x", justification="y")
            assert "no sandbox here" in text_of(result)
            async with tools.ctx.plugin(Sandbox):
                await tools.ctx.settled()
                assert offered() == {"write", "edit"}
            await tools.ctx.settled()
            assert offered() == set()
            assert sorted(tools.tools.names()) == ["edit", "glob", "grep", "read", "write"]
        assert tools.tools.names() == []


class Approval:
    """Allows once."""

    async def request(self, *arguments: object, **options: object) -> str:
        return "allowed-once"


async def test_C60_an_approved_change_is_made_once(root: Path) -> None:
    async with bench(root, "read-only") as b:
        wider = {"sandbox_permissions": "workspace-write", "justification": "to fix it"}
        refused = await b.run("write", file_path="f", content="new", **wider)
        assert code_of(refused) == "SANDBOX_ESCALATION"
        b.tools.ctx.provide("approval", Approval())
        assert code_of(await b.run("write", file_path="f", content="new", **wider)) is None
        edit = {"file_path": "f", "old_string": "new", "new_string": "newer"}
        assert code_of(await b.run("edit", **edit)) == "FS_SANDBOX_DENIED"
        assert code_of(await b.run("edit", **edit, **wider)) is None
    assert (root / "f").read_text("utf-8") == "newer"


def test_the_sandbox_fits_what_the_tools_expect() -> None:
    fits: type[GovernsFiles] = Sandbox
    assert fits.decide is not None
