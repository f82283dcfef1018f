"""The file service on real files."""

import errno
import os
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import anyio
import msgspec
import pytest

from dsh_cordis import Context
from dsh_fs import (
    Config,
    CreateIfAbsent,
    DirEntry,
    Edit,
    FsError,
    FsService,
    FsVersion,
    ReplaceIfVersion,
)
from dsh_fs.testing import no_staging_left
from dsh_llm import AbortController


@asynccontextmanager
async def service(root: Path, *, confine: bool = False) -> AsyncIterator[FsService]:
    async with Context() as ctx:
        await ctx.plugin(FsService, Config(root=root, confine=confine))
        fs = ctx.get(FsService)
        assert fs is not None
        yield fs


def code(caught: pytest.ExceptionInfo[FsError]) -> str:
    return caught.value.code


async def test_C3_C4_two_spellings_of_a_file_have_one_key(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/a.txt").write_text("a", encoding="utf-8")
    (tmp_path / "link").symlink_to("dir")
    async with service(tmp_path) as fs:
        plain = await fs.resolve("dir/a.txt")
        linked = await fs.resolve(str(tmp_path / "link" / "a.txt"))
        climbing = await fs.resolve("../dir/a.txt", str(tmp_path / "link"))
        assert plain.target_key == linked.target_key == climbing.target_key
        assert plain.display_path == str(tmp_path / "dir/a.txt")
        assert linked.display_path == str(tmp_path / "link/a.txt")
        missing = await fs.resolve("link/new/deep.txt")
        assert missing.target_key == str(tmp_path / "dir/new/deep.txt")


@pytest.mark.parametrize("path", ["", "  ", "file/below", "nul\0byte"])
async def test_C3_paths_that_name_nothing(tmp_path: Path, path: str) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    async with service(tmp_path) as fs:
        with pytest.raises(FsError) as caught:
            await fs.resolve(path)
        assert code(caught) == "FS_NOT_FOUND"


async def test_C6_stat_follows_links_and_listings_are_sorted(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("xy", encoding="utf-8")
    (tmp_path / "a").mkdir()
    (tmp_path / "c").symlink_to("b")
    (tmp_path / "d").symlink_to("nowhere")
    async with service(tmp_path) as fs:
        status = await fs.stat(await fs.resolve("c"))
        assert status is not None
        assert (status.kind, status.size_bytes) == ("file", 2)
        assert await fs.stat(await fs.resolve("nothing")) is None
        assert await fs.list_dir(await fs.resolve(".")) == (
            DirEntry("a", "directory"),
            DirEntry("b", "file"),
            DirEntry("c", "file"),
            DirEntry("d", "other"),
        )
        with pytest.raises(FsError) as caught:
            await fs.list_dir(await fs.resolve("b"))
        assert code(caught) == "FS_NOT_DIRECTORY"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b"a\0b", "FS_NOT_TEXT", id="NUL"),
        pytest.param(b"x" * 9000 + b"\xff", "FS_NOT_TEXT", id="invalid UTF-8 far inside"),
        pytest.param(b"\xc3", "FS_NOT_TEXT", id="cut character at the end"),
    ],
)
async def test_C8_what_is_not_text(tmp_path: Path, data: bytes, problem: str) -> None:
    (tmp_path / "f").write_bytes(data)
    async with service(tmp_path) as fs:
        target = await fs.resolve("f")
        with pytest.raises(FsError) as caught:
            await fs.read_text(target)
        assert code(caught) == problem
        with pytest.raises(FsError) as caught:
            await fs.read_lines(target, limit=9, max_bytes=99, max_chars=9)
        assert code(caught) == problem


async def test_C8_text_is_read_as_it_is_but_for_the_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbfa\r\nb\rc\n" + b"x" * 8200 + b"\0")
    async with service(tmp_path) as fs:
        text = (await fs.read_text(await fs.resolve("f"))).text
        assert text.startswith("a\r\nb\rc\n")
        assert text.endswith("\0")


async def test_C9_C11_writes_are_verbatim_and_new_files_private(tmp_path: Path) -> None:
    async with service(tmp_path) as fs:
        target = await fs.resolve("new/dir/f.txt")
        change = await fs.write_text(target, "a\r\nb")
        path = tmp_path / "new/dir/f.txt"
        assert path.read_bytes() == b"a\r\nb"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert (change.operation, change.before, change.after) == ("create", None, "a\nb")
        path.chmod(0o754)
        again = await fs.write_text(target, "c")
        assert stat.S_IMODE(path.stat().st_mode) == 0o754
        assert (again.operation, again.before) == ("update", "a\nb")
        status = await fs.stat(target)
        assert status is not None
        assert status.version == again.version
        with pytest.raises(FsError) as caught:
            await fs.write_text(await fs.resolve("new"), "x")
        assert code(caught) == "FS_NOT_REGULAR_FILE"
        assert no_staging_left(tmp_path)


async def test_C10_C12_expectations(tmp_path: Path) -> None:
    path = tmp_path / "f"
    async with service(tmp_path) as fs:
        target = await fs.resolve("f")
        created = await fs.write_text(target, "one", CreateIfAbsent())
        status = await fs.stat(target)
        assert status is not None
        assert status.version == created.version
        with pytest.raises(FsError) as caught:
            await fs.write_text(target, "two", CreateIfAbsent())
        assert code(caught) == "FS_NOT_OBSERVED"
        assert "read it" in caught.value.message
        changed = await fs.write_text(target, "two", ReplaceIfVersion(created.version))
        with pytest.raises(FsError) as caught:
            await fs.write_text(target, "three", ReplaceIfVersion(created.version))
        assert code(caught) == "FS_STALE_VERSION"
        path.unlink()
        with pytest.raises(FsError) as caught:
            await fs.write_text(target, "three", ReplaceIfVersion(changed.version))
        assert code(caught) == "FS_STALE_VERSION"
        assert not path.exists()
        assert no_staging_left(tmp_path)


@pytest.mark.parametrize("kind", ["file", "directory", "link", "unsupported"])
async def test_C12_a_competitor_that_comes_first_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path = tmp_path / "f"
    link = os.link

    def overtaken(*args: object, **kwargs: object) -> None:
        match kind:
            case "file":
                path.write_text("theirs", encoding="utf-8")
            case "directory":
                path.mkdir()
            case "link":
                path.symlink_to("nowhere")
            case _:
                raise OSError(errno.EPERM, "no hard links here")
        link(*args, **kwargs)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(os, "link", overtaken)
    async with service(tmp_path) as fs:
        with pytest.raises(FsError) as caught:
            await fs.write_text(await fs.resolve("f"), "ours", CreateIfAbsent())
    assert (
        code(caught)
        == {
            "file": "FS_NOT_OBSERVED",
            "directory": "FS_NOT_REGULAR_FILE",
            "link": "FS_NOT_REGULAR_FILE",
            "unsupported": "FS_IO_ERROR",
        }[kind]
    )
    assert not path.is_file() or path.read_text(encoding="utf-8") == "theirs"
    assert no_staging_left(tmp_path)


async def test_C11_C122_a_crash_before_the_rename_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o640)

    def crash(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EIO, "power lost")

    monkeypatch.setattr(os, "replace", crash)
    async with service(tmp_path) as fs:
        with pytest.raises(FsError) as caught:
            await fs.write_text(await fs.resolve("f"), "new")
    assert code(caught) == "FS_IO_ERROR"
    assert (path.read_text(encoding="utf-8"), stat.S_IMODE(path.stat().st_mode)) == ("old", 0o640)


async def test_C13_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old", encoding="utf-8")
    (tmp_path / "link").symlink_to("real")
    async with service(tmp_path) as fs:
        await fs.write_text(await fs.resolve("link"), "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text(encoding="utf-8") == "new"


async def test_C13_C121_concurrent_edits_through_two_spellings_are_both_applied(
    tmp_path: Path,
) -> None:
    (tmp_path / "f").write_text("a b", encoding="utf-8")
    (tmp_path / "link").symlink_to("f")
    async with service(tmp_path) as fs, anyio.create_task_group() as tasks:
        for name, edit in (("f", Edit("a", "A")), ("link", Edit("b", "B"))):
            tasks.start_soon(fs.edit_text, await fs.resolve(name), edit)
    assert (tmp_path / "f").read_text(encoding="utf-8") == "A B"


async def test_C13_an_aborted_waiter_leaves_the_queue_without_writing(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old", encoding="utf-8")
    async with service(tmp_path) as fs:
        target = await fs.resolve("f")
        controller = AbortController()
        problems: list[str] = []

        async def write() -> None:
            try:
                await fs.write_text(target, "new", signal=controller.signal)
            except FsError as error:
                problems.append(error.code)

        with anyio.fail_after(5):
            async with (
                fs._locks.hold(target.target_key, None, "test"),
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(write)
                await anyio.wait_all_tasks_blocked()
                controller.abort()
        assert problems == ["FS_ABORTED"]
        await fs.write_text(target, "later")
        assert fs._locks._locks == {}
    assert (tmp_path / "f").read_text(encoding="utf-8") == "later"


async def test_C1_C6_lstat_takes_a_path_and_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir/f").write_text("abc", encoding="utf-8")
    (tmp_path / "link").symlink_to("dir/f")
    (tmp_path / "dangling").symlink_to("none")
    (tmp_path / "folder").symlink_to("dir")
    async with service(tmp_path) as fs:
        kinds = {}
        for path in (
            "dir/f",
            "link",
            "dangling",
            "folder",
            "folder/f",
            "folder/",
            ".",
            "none",
            "no/f",
        ):
            status = await fs.lstat(path)
            kinds[path] = None if status is None else status.kind
        assert kinds == {
            "dir/f": "file",
            "link": "link",
            "dangling": "link",
            "folder": "link",
            "folder/f": "file",
            "folder/": "link",
            ".": "directory",
            "none": None,
            "no/f": None,
        }
        for wrong in ("", "a\0b", "x" * 5000):
            with pytest.raises(FsError):
                await fs.lstat(wrong)
        with pytest.raises(FsError):
            await fs.lstat("x" * 300)


async def test_C1_C58_lstat_stays_inside_the_fence(tmp_path: Path) -> None:
    (tmp_path / "w").mkdir()
    (tmp_path / "w/out").symlink_to(tmp_path)
    async with service(tmp_path / "w", confine=True) as fs:
        status = await fs.lstat("out")
        assert status is not None
        assert status.kind == "link"
        for path in ("out/x", "..", "../x", "/etc/passwd"):
            with pytest.raises(FsError) as caught:
                await fs.lstat(path)
            assert code(caught) == "FS_SANDBOX_DENIED"


async def test_C1_C8_a_text_of_any_size_comes_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_fs._reading._CHUNK_BYTES", 3)
    text = "a\u20acb\r\n" * 50
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbf" + text.encode())
    (tmp_path / "late").write_bytes(b"abc\xff")
    (tmp_path / "cut").write_bytes(b"ab\xe2\x82")
    before = open_files()
    async with service(tmp_path) as fs:
        pieces = [piece async for piece in fs.stream_text(await fs.resolve("f"))]
        assert "".join(pieces) == text
        assert all(pieces)
        async with aclosing(fs.stream_text(await fs.resolve("f"))) as stream:
            assert text.startswith(await anext(stream))
        for name in ("late", "cut"):
            with pytest.raises(FsError) as caught:
                async for _ in fs.stream_text(await fs.resolve(name)):
                    pass
            assert code(caught) == "FS_NOT_TEXT"
        controller = AbortController()
        aborted = fs.stream_text(await fs.resolve("f"), signal=controller.signal)
        assert await anext(aborted)
        controller.abort()
        with pytest.raises(FsError) as caught:
            await anext(aborted)
        assert code(caught) == "FS_ABORTED"
        assert open_files() == before


def open_files() -> int:
    folder = Path("/proc/self/fd")
    return sum(1 for _ in folder.iterdir()) if folder.exists() else 0


async def test_C1_C4_programs_and_urls_get_the_real_path(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    async with service(tmp_path) as fs:
        target = await fs.resolve("link/a b")
        assert fs.process_path(target) == f"{tmp_path}/d/a b"
        assert fs.file_url(target) == f"file://{tmp_path}/d/a%20b"


async def test_C1_an_abort_before_the_work_does_nothing(tmp_path: Path) -> None:
    controller = AbortController()
    controller.abort()
    async with service(tmp_path) as fs:
        target = await fs.resolve("f")
        with pytest.raises(FsError) as caught:
            await fs.write_text(target, "x", signal=controller.signal)
        assert code(caught) == "FS_ABORTED"
    assert no_files(tmp_path)


def no_files(folder: Path) -> bool:
    return not list(folder.iterdir())


@pytest.mark.parametrize(
    ("before", "edit", "after"),
    [
        pytest.param(b"a\r\nb\r\n", Edit("a\nb", "x\ny"), b"x\r\ny\r\n", id="CRLF is kept"),
        pytest.param(b"a\nb\r\n", Edit("b", "c"), b"a\nc\n", id="ties become LF"),
        pytest.param(b"a\r\nb\r\nc\n", Edit("c", "d"), b"a\r\nb\r\nd\r\n", id="mixed is unified"),
        pytest.param(b"a\rb", Edit("a\rb", "x"), b"x", id="lone CR is text"),
        pytest.param(b"a.c a.c", Edit("a.c", r"\1$&", True), rb"\1$& \1$&", id="literal"),
        pytest.param(b"aaa", Edit("aa", "b", True), b"ba", id="without overlap"),
        pytest.param(b"\xef\xbb\xbfa", Edit("a", "b"), b"\xef\xbb\xbfb", id="BOM stays"),
    ],
)
async def test_C15_C16_edits(tmp_path: Path, before: bytes, edit: Edit, after: bytes) -> None:
    (tmp_path / "f").write_bytes(before)
    async with service(tmp_path) as fs:
        await fs.edit_text(await fs.resolve("f"), edit)
    assert (tmp_path / "f").read_bytes() == after


async def test_C15_edits_that_do_not_happen(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"a b a")
    (tmp_path / "binary").write_bytes(b"a" * 9000 + b"\0")
    async with service(tmp_path) as fs:
        target = await fs.resolve("f")
        status = await fs.stat(target)
        assert status is not None
        for name, edit, problem in (
            ("f", Edit("z", "y"), "FS_EDIT_NOT_FOUND"),
            ("f", Edit("a", "y"), "FS_AMBIGUOUS_EDIT"),
            ("missing", Edit("a", "y"), "FS_STALE_VERSION"),
            ("binary", Edit("a", "y", True), "FS_NOT_TEXT"),
        ):
            with pytest.raises(FsError) as caught:
                await fs.edit_text(await fs.resolve(name), edit)
            assert code(caught) == problem
        assert "2 times" in (await _message(fs, Edit("a", "y")))
        (tmp_path / "f").write_bytes(b"z z")
        with pytest.raises(FsError) as caught:
            await fs.edit_text(target, Edit("nothing", "y"), ReplaceIfVersion(status.version))
        assert code(caught) == "FS_STALE_VERSION"


async def _message(fs: FsService, edit: Edit) -> str:
    with pytest.raises(FsError) as caught:
        await fs.edit_text(await fs.resolve("f"), edit)
    return caught.value.message


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everything")
async def test_C2_write_protection_is_respected(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old", encoding="utf-8")
    path.chmod(0o444)
    async with service(tmp_path) as fs:
        with pytest.raises(FsError) as caught:
            await fs.write_text(await fs.resolve("f"), "new")
        assert code(caught) == "FS_PERMISSION_DENIED"


async def test_C2_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    async with service(tmp_path) as fs:
        with anyio.fail_after(5), pytest.raises(FsError) as caught:
            await fs.read_text(await fs.resolve("pipe"))
        assert code(caught) == "FS_NOT_REGULAR_FILE"


async def test_C116_file_work_is_done_outside_the_event_loop(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\nb\n", encoding="utf-8")
    threads: set[int] = set()
    async with service(tmp_path) as fs:
        target = await fs.resolve("f")
        await fs._reading(None, target, lambda key, display: threads.add(threading.get_ident()))
    assert threads.isdisjoint({threading.get_ident()})


# ---- confinement ----------------------------------------------------------------------------


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root, outside = tmp_path / "w", tmp_path / "o"
    root.mkdir()
    outside.mkdir()
    (outside / "secret.txt").write_text("secret", encoding="utf-8")
    (root / "inside.txt").write_text("inside", encoding="utf-8")
    (root / "to_folder").symlink_to(outside)
    (root / "to_file").symlink_to(outside / "secret.txt")
    (root / "dangling").symlink_to(outside / "new.txt")
    (root / "within").symlink_to("inside.txt")
    return root


ESCAPES = ["to_folder/secret.txt", "to_file", "dangling", "../o/secret.txt", "{o}/secret.txt"]


@pytest.mark.parametrize(
    "path", [*ESCAPES, "to_folder", "to_folder/new/deep.txt", "inside.txt/../../o"]
)
async def test_C58_what_leaves_the_root_is_refused(workspace: Path, path: str) -> None:
    outside = workspace.parent / "o"
    async with service(workspace, confine=True) as fs:
        with pytest.raises(FsError) as caught:
            await fs.resolve(path.format(o=outside))
        assert code(caught) == "FS_SANDBOX_DENIED"
    assert not (outside / "new").exists()
    assert not (outside / "new.txt").exists()


async def test_C58_a_target_is_judged_again_right_before_its_use(workspace: Path) -> None:
    async with service(workspace, confine=True) as fs:
        target = await fs.resolve("later/f.txt")
        (workspace / "later").symlink_to(workspace.parent / "o")
        for use in (
            lambda: fs.write_text(target, "x"),
            lambda: fs.read_text(target),
            lambda: fs.stat(target),
            lambda: fs.edit_text(target, Edit("a", "b")),
        ):
            with pytest.raises(FsError) as caught:
                await use()
            assert code(caught) == "FS_SANDBOX_DENIED"
    assert not (workspace.parent / "o/f.txt").exists()


async def test_C58_links_within_and_a_root_reached_through_a_link_work(workspace: Path) -> None:
    alias = workspace.parent / "alias"
    alias.symlink_to(workspace)
    async with service(alias, confine=True) as fs:
        for path in ("within", "inside.txt", str(alias / "inside.txt"), str(workspace / "within")):
            assert (await fs.read_text(await fs.resolve(path))).text == "inside"
        await fs.write_text(await fs.resolve("new/f.txt"), "x")
    assert (workspace / "new/f.txt").exists()


async def test_a_sibling_with_the_roots_name_as_prefix_is_outside(workspace: Path) -> None:
    (workspace.parent / "w2").mkdir()
    async with service(workspace, confine=True) as fs:
        with pytest.raises(FsError) as caught:
            await fs.resolve("../w2/f")
        assert code(caught) == "FS_SANDBOX_DENIED"


def test_C7_a_version_is_five_integers_of_the_file_compared_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("x", encoding="utf-8")
    # A float of this time is a whole number of seconds: it cannot hold the nanosecond.
    os.utime(path, ns=(0, 1_700_000_000_000_000_001))
    status = path.stat()
    version = FsVersion.of(status)
    parts = msgspec.structs.asdict(version)
    assert parts == {
        "device": status.st_dev,
        "inode": status.st_ino,
        "size": 1,
        "mtime_ns": 1_700_000_000_000_000_001,
        "ctime_ns": status.st_ctime_ns,
    }
    assert {type(part) for part in parts.values()} == {int}
    assert version == FsVersion.of(path.stat())
    for name, part in parts.items():
        assert version != msgspec.structs.replace(version, **{name: part + 1}), name


async def test_C7_C10_changes_that_leave_size_and_time_alone_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    async with service(tmp_path) as fs:
        target = await fs.resolve("f")
        old = (await fs.write_text(target, "one")).version
        path.write_text("two", encoding="utf-8")
        os.utime(path, ns=(old.mtime_ns, old.mtime_ns))
        with pytest.raises(FsError) as caught:
            await fs.write_text(target, "three", ReplaceIfVersion(old))
        assert code(caught) == "FS_STALE_VERSION"
        assert path.read_text(encoding="utf-8") == "two"


LIMIT = 10 * 1024 * 1024


@pytest.mark.parametrize(
    ("old", "new", "operation", "before", "after"),
    [
        pytest.param(None, "a\r\nb\rc", "create", None, "a\nb\rc", id="new"),
        pytest.param(b"a\r\nb\rc", "d\r\n", "update", "a\nb\rc", "d\n", id="text"),
        pytest.param(b"", "d", "update", "", "d", id="empty"),
        pytest.param(b"a\0", "d", "update", None, "d", id="NUL"),
        pytest.param(b"a\xff", "d", "update", None, "d", id="invalid UTF-8"),
        pytest.param(b"x" * LIMIT, "d", "update", None, "d", id="old too large"),
        pytest.param(b"x" * (LIMIT - 1), "d", "update", "x" * (LIMIT - 1), "d", id="old fits"),
        pytest.param(b"a", "x" * LIMIT, "update", None, "x" * LIMIT, id="new too large"),
    ],
)
async def test_C14_what_a_write_did(
    tmp_path: Path, old: bytes | None, new: str, operation: str, before: str | None, after: str
) -> None:
    if old is not None:
        (tmp_path / "f").write_bytes(old)
    async with service(tmp_path) as fs:
        change = await fs.write_text(await fs.resolve("f"), new)
        assert change.operation == operation
        # Not compared by pytest, which would print ten megabytes.
        assert (change.before == before) is True
        assert (change.after == after) is True
