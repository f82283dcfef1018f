"""What a hostile path, file, name or neighbour tries, and what the file capability does about it."""

import os
import socket
import stat
import sys
import unicodedata
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from dsh_fs import Edit, FsError, FsTarget, FsVersion, ReplaceIfVersion
from dsh_fs._paths import Fence, fresh_key  # noqa: PLC2701  # what comes between it and its use
from dsh_fs._reading import read_whole  # noqa: PLC2701  # the same
from dsh_fs._ripgrep import Program  # noqa: PLC2701  # a stand-in is needed
from dsh_fs.search_tool import search_alone
from dsh_fs.testing import file_bench, no_staging_left
from dsh_tools.testing import code_of, text_of

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="about /proc and /dev")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace `w` beside a folder `o`, each with `sub/f`."""
    for name, text in (("w", "inside"), ("o", "outside")):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub/f").write_text(text, encoding="utf-8")
    return tmp_path / "w"


def content_of(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in folder.rglob("*")
        if path.is_file()
    }


def swap(workspace: Path) -> None:
    """Put a link that leads outside in the place of a folder."""
    (workspace / "sub").rename(workspace / "moved")
    (workspace / "sub").symlink_to(workspace.parent / "o/sub")


# ---- races ----------------------------------------------------------------------------------


async def test_C58_a_folder_swapped_for_a_link_after_it_was_judged_is_not_followed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judged_too_early(target: FsTarget, fence: Fence | None) -> str:
        key = fresh_key(target, fence)
        swap(workspace)
        return key

    async with file_bench(workspace, confine=True) as b:
        attempts: list[Callable[[FsTarget], Awaitable[object]]] = [
            b.fs.read_text,
            b.fs.stat,
            lambda target: b.fs.read_bytes(target, 10),
            lambda target: b.fs.write_text(target, "x"),
            lambda target: b.fs.edit_text(target, Edit("outside", "x")),
        ]
        for attempt in attempts:
            target = await b.fs.resolve("sub/f")
            with monkeypatch.context() as patched:
                patched.setattr("dsh_fs.service.fresh_key", judged_too_early)
                with pytest.raises(FsError):
                    await attempt(target)
            (workspace / "sub").unlink()
            (workspace / "moved").rename(workspace / "sub")
        folder = await b.fs.resolve("sub")
        monkeypatch.setattr("dsh_fs.service.fresh_key", judged_too_early)
        with pytest.raises(FsError):
            await b.fs.list_dir(folder)
    assert content_of(workspace.parent / "o") == {"sub/f": "outside"}


@pytest.mark.parametrize("name", ["f", "new"])
async def test_C58_a_folder_swapped_for_a_link_in_mid_write_gets_nothing(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    sync = os.fsync

    def sync_late(descriptor: int) -> None:
        swap(workspace)
        sync(descriptor)

    async with file_bench(workspace, confine=True) as b:
        target = await b.fs.resolve(f"sub/{name}")
        monkeypatch.setattr(os, "fsync", sync_late)
        await b.fs.write_text(target, "x")
    assert content_of(workspace.parent / "o") == {"sub/f": "outside"}
    assert (workspace / "moved" / name).read_text(encoding="utf-8") == "x"
    assert no_staging_left(workspace.parent)


@pytest.mark.parametrize("operation", ["write", "edit", "edit with a version"])
async def test_C10_C121_a_change_between_check_and_publishing_is_not_overwritten(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    path = workspace / "sub/f"
    sync = os.fsync

    def sync_late(descriptor: int) -> None:
        path.write_text("theirs", encoding="utf-8")
        sync(descriptor)

    async with file_bench(workspace) as b:
        target = await b.fs.resolve("sub/f")
        known = await b.fs.stat(target)
        assert known is not None
        expected = ReplaceIfVersion(known.version)
        edit = Edit("inside", "ours")
        changes: dict[str, Callable[[], Awaitable[object]]] = {
            "write": lambda: b.fs.write_text(target, "ours", expected),
            "edit": lambda: b.fs.edit_text(target, edit),
            "edit with a version": lambda: b.fs.edit_text(target, edit, expected),
        }
        monkeypatch.setattr(os, "fsync", sync_late)
        with pytest.raises(FsError) as caught:
            await changes[operation]()
    assert caught.value.code == "FS_STALE_VERSION"
    assert path.read_text(encoding="utf-8") == "theirs"
    assert no_staging_left(workspace)


async def test_C10_C15_a_change_between_check_and_reading_is_not_edited(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workspace / "sub/f"

    def read_late(key: str, display: str, max_bytes: int) -> tuple[bytes, FsVersion]:
        path.write_text("inside, theirs", encoding="utf-8")
        return read_whole(key, display, max_bytes)

    async with file_bench(workspace) as b:
        target = await b.fs.resolve("sub/f")
        known = await b.fs.stat(target)
        assert known is not None
        monkeypatch.setattr("dsh_fs._writing.read_whole", read_late)
        with pytest.raises(FsError) as caught:
            await b.fs.edit_text(target, Edit("inside", "ours"), ReplaceIfVersion(known.version))
    assert caught.value.code == "FS_STALE_VERSION"
    assert path.read_text(encoding="utf-8") == "inside, theirs"


# ---- links ----------------------------------------------------------------------------------


async def test_a_hard_link_is_cut_by_writing_and_its_other_name_keeps_its_text(
    workspace: Path,
) -> None:
    outside = workspace.parent / "o/sub/f"
    os.link(outside, workspace / "hard")
    async with file_bench(workspace, confine=True) as b:
        await b.run("read", file_path="hard")
        await b.run("edit", file_path="hard", old_string="outside", new_string="changed")
    assert (workspace / "hard").read_text(encoding="utf-8") == "changed"
    assert outside.read_text(encoding="utf-8") == "outside"


async def test_C58_chains_and_circles_of_links(workspace: Path) -> None:
    for number in range(60):
        (workspace / f"in{number}").symlink_to(f"in{number + 1}" if number < 59 else "sub/f")
        (workspace / f"out{number}").symlink_to(f"out{number + 1}" if number < 59 else "../o/sub/f")
    (workspace / "a").symlink_to("b")
    (workspace / "b").symlink_to("a")
    (workspace / "self").symlink_to("self/x")
    async with file_bench(workspace, confine=True) as b:
        assert "1: inside" in text_of(await b.run("read", file_path="in0"))
        assert code_of(await b.run("read", file_path="out0")) == "FS_SANDBOX_DENIED"
        for name in ("a", "self", "self/x"):
            for result in (
                await b.run("read", file_path=name),
                await b.run("write", file_path=name, content="x"),
                await b.run("grep", pattern="x", path=name),
            ):
                assert (code_of(result) or "").startswith("FS_")


@linux
@pytest.mark.parametrize(
    "path", ["/proc/self/root/{o}/f", "/proc/self/cwd/../../../../../../../..{o}/f", "/dev/fd/0"]
)
async def test_C58_doors_in_proc_and_dev_do_not_lead_around_the_fence(
    workspace: Path, path: str
) -> None:
    outside = str(workspace.parent / "o/sub")
    async with file_bench(workspace, confine=True) as b:
        result = await b.run("read", file_path=path.format(o=outside))
        assert code_of(result) == "FS_SANDBOX_DENIED"


async def test_C58_the_fence_does_not_tell_what_is_behind_it(workspace: Path) -> None:
    async with file_bench(workspace, confine=True) as b:
        for path in ("../o/sub/f", "../o/sub/none", "../o/sub/f/below", "../none/x", "../o/"):
            result = await b.run("read", file_path=path)
            assert code_of(result) == "FS_SANDBOX_DENIED"


# ---- what is no file ------------------------------------------------------------------------


async def test_C2_pipes_sockets_devices_and_folders_are_refused_without_waiting(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    paths = ["pipe", "folder", "socket", "/dev/zero", "/dev/null"]
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(tmp_path)  # the name of a socket is short
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        async with file_bench(tmp_path, require_read=False) as b:
            for path in paths:
                for result in (
                    await b.run("read", file_path=path),
                    await b.run("write", file_path=path, content="x"),
                    await b.run("edit", file_path=path, old_string="a", new_string="b"),
                ):
                    assert code_of(result) == "FS_NOT_REGULAR_FILE", path
                if path != "folder":
                    result = await b.run("grep", pattern="x", path=path)
                    assert code_of(result) == "FS_NOT_REGULAR_FILE", path
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@linux
async def test_the_variables_of_running_programs_are_out_of_reach(tmp_path: Path) -> None:
    async with file_bench(tmp_path) as b:
        for path in ("/proc/self/environ", f"/proc/{os.getpid()}/mem", "/proc/thread-self/environ"):
            for result in (
                await b.run("read", file_path=path),
                await b.run("grep", pattern="PATH", path=path),
                await b.run("write", file_path=path, content="x"),
            ):
                assert code_of(result) == "FS_PERMISSION_DENIED"
        for path in ("/proc/self", "/proc/self/task", f"/proc/{os.getppid()}/"):
            result = await b.run("grep", pattern="PATH", path=path)
            assert code_of(result) == "FS_PERMISSION_DENIED"
        result = await b.run("grep", pattern="^Name:", path="/proc", include="status")
        assert text_of(result).startswith("No matches found")


async def test_a_file_of_ten_gigabytes_costs_neither_memory_nor_time(tmp_path: Path) -> None:
    size = 10 * 1024**3
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(size)
    with (tmp_path / "late").open("wb") as file:
        file.write(b"text\n" * 4000)
        file.truncate(size)
    async with file_bench(tmp_path, require_read=False) as b:
        assert code_of(await b.run("read", file_path="sparse")) == "FS_NOT_TEXT"
        result = await b.run("edit", file_path="sparse", old_string="a", new_string="b")
        assert code_of(result) == "FS_TOO_LARGE"
        with pytest.raises(FsError) as caught:
            await b.fs.read_text(await b.fs.resolve("late"))
        assert caught.value.code == "FS_TOO_LARGE"
        assert await b.fs.read_bytes(await b.fs.resolve("sparse"), 10) == b"\0" * 10
        assert code_of(await b.run("write", file_path="sparse", content="small")) is None
    assert (tmp_path / "sparse").read_text(encoding="utf-8") == "small"


@linux
async def test_a_file_that_holds_more_than_it_says_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_fs._reading.MAX_TEXT_BYTES", 10)
    async with file_bench(tmp_path) as b:  # files of /proc say that they are empty
        with pytest.raises(FsError) as caught:
            await b.fs.read_text(await b.fs.resolve("/proc/version"))
    assert caught.value.code == "FS_TOO_LARGE"


# ---- names ----------------------------------------------------------------------------------


async def test_C3_names_that_no_file_can_have(tmp_path: Path) -> None:
    async with file_bench(tmp_path) as b:
        for path in ("nul\0byte", "x" * 100_000, "x/" * 3000, "é" * 2100):
            result = await b.run("write", file_path=path, content="x")
            assert code_of(result) == "FS_NOT_FOUND"
            assert len(text_of(result)) < 300
        assert code_of(await b.run("write", file_path="x" * 300, content="x")) == "FS_IO_ERROR"
        for path in ("half\ud800", "half\udcff"):
            result = await b.run("write", file_path=path, content="x")
            assert "half a surrogate pair" in text_of(result)
    assert content_of(tmp_path) == {}


async def test_a_name_that_ends_like_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x", encoding="utf-8")
    async with file_bench(tmp_path) as b:
        for path in ("f/", "f/.", "new/", "new/.", "sub/new/"):
            for result in (
                await b.run("read", file_path=path),
                await b.run("write", file_path=path, content="y"),
            ):
                assert code_of(result) == "FS_NOT_FOUND", path
    assert content_of(tmp_path) == {"f": "x"}


async def test_names_that_look_alike_are_different_files(tmp_path: Path) -> None:
    composed = unicodedata.normalize("NFC", "é")
    names = [composed, unicodedata.normalize("NFD", composed), "\u0261it", "git", "a.", "a ", "a"]
    (tmp_path / "probe").touch()
    if (tmp_path / "PROBE").exists():
        pytest.skip("this file system takes some of them for the same")
    async with file_bench(tmp_path) as b:
        for name in names:
            assert code_of(await b.run("write", file_path=name, content=name)) is None
        for name in names:
            assert f"1: {name}\n" in text_of(await b.run("read", file_path=name))


async def test_C13_names_that_some_systems_take_for_one_wait_for_each_other(tmp_path: Path) -> None:
    async with file_bench(tmp_path) as b:
        target = await b.fs.resolve("É")
        other = await b.fs.resolve(unicodedata.normalize("NFD", "é"))
        async with (
            anyio.create_task_group() as tasks,
            b.fs._locks.hold(target.target_key, None, "test"),
        ):
            tasks.start_soon(b.fs.write_text, other, "x")
            await anyio.wait_all_tasks_blocked()
            assert content_of(tmp_path) == {}
    assert list(content_of(tmp_path).values()) == ["x"]


async def test_C58_capitals_do_not_lead_around_the_fence(workspace: Path) -> None:
    (workspace.parent / "W").mkdir(exist_ok=True)
    async with file_bench(workspace, confine=True) as b:
        result = await b.run("write", file_path=str(workspace.parent / "W/new"), content="x")
    # Where capitals make no difference it is the same folder, and refused all the same.
    assert code_of(result) == "FS_SANDBOX_DENIED"


async def test_names_with_control_characters_stay_on_their_line(tmp_path: Path) -> None:
    for name in ("two\nlines", "red\x1b[31m", "turned\u202etxt"):
        (tmp_path / name).write_text("needle", encoding="utf-8")
    async with file_bench(tmp_path) as b:
        shown = text_of(await b.run("glob", pattern="*")) + text_of(
            await b.run("grep", pattern="needle")
        )
    assert not any(char in shown for char in "\x1b\u202e")
    assert '"two\\nlines"' in shown.splitlines()


async def test_what_is_written_cannot_be_run_unless_it_could_before(tmp_path: Path) -> None:
    async with file_bench(tmp_path, require_read=False) as b:
        hook = tmp_path / ".git/hooks/pre-commit"
        await b.run("write", file_path=str(hook), content="#!/bin/sh\n")
        assert stat.S_IMODE(hook.stat().st_mode) == 0o600
        hook.chmod(0o4750)
        await b.run("write", file_path=str(hook), content="#!/bin/sh\n\n")
        assert stat.S_IMODE(hook.stat().st_mode) == 0o750


# ---- ripgrep --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [
        "(a{1000}){1000}",
        "((a{0,100}){0,100}){0,100}",
        "(" * 300 + "a" + ")" * 300,
        r"(\pL{99}){99}",
    ],
)
async def test_C36_expressions_that_explode_are_refused_at_once(
    tmp_path: Path, pattern: str
) -> None:
    (tmp_path / "f").write_text("a" * 5_000_000, encoding="utf-8")
    async with file_bench(tmp_path) as b:
        with anyio.fail_after(5):
            result = await b.run("grep", pattern=pattern)
    assert code_of(result) == "SEARCH_INVALID_PATTERN"
    assert len(text_of(result)) < 3000


async def test_C36_globs_and_expressions_that_do_not_explode(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a" * 1_000_000, encoding="utf-8")
    async with file_bench(tmp_path) as b:
        with anyio.fail_after(5):
            assert text_of(await b.run("grep", pattern="(a*)*(a|a)*b")) == "No matches found"
            assert text_of(await b.run("glob", pattern="{a,b}" * 500)) == "No files found"
            assert text_of(await b.run("glob", pattern="*a" * 500)) == "No files found"
            result = await b.run("glob", pattern="{" * 300 + "a" + "}" * 300)
            assert code_of(result) == "SEARCH_INVALID_PATTERN"
            result = await b.run("grep", pattern="a" * 3_000_000)
            assert code_of(result) == "SEARCH_FAILED"
            assert len(text_of(result)) < 300


async def test_C43_ripgrep_gets_no_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROVIDER_API_KEY", "k")
    monkeypatch.setenv("GH_PAT", "k")
    ran = await search_alone().collect(
        ["/usr/bin/env"],
        cwd="/",
        stdout_bytes=9999,
        stderr_bytes=99,
        timeout_ms=5000,
        grace_ms=100,
    )
    names = {line.partition(b"=")[0] for line in ran.stdout.splitlines()}
    assert names <= {b"HOME", b"PATH", b"XDG_CONFIG_HOME"}


async def test_a_ripgrep_that_was_put_in_the_place_of_ours_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "rg"
    program.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    program.chmod(0o755)
    found = Program(str(program), FsVersion.of(program.stat()))
    monkeypatch.setattr("dsh_fs._ripgrep.ripgrep_program", lambda: found)
    async with file_bench(tmp_path) as b:
        assert text_of(await b.run("grep", pattern="x")) == "No matches found"
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n", encoding="utf-8")
        result = await b.run("grep", pattern="x")
    assert code_of(result) == "SEARCH_FAILED"
    assert "restart the host" in text_of(result)
    assert not (tmp_path / "ran").exists()
