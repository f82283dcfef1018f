"""`glob` and `grep` over real trees, with and without the subprocess runtime."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest

import dsh_fs
import dsh_shell
from dsh_cordis import Next
from dsh_fs import texts
from dsh_fs.search_tool import RunsCommands, search_alone
from dsh_fs.testing import FileBench
from dsh_llm import AbortController
from dsh_shell import SpillStore, SubprocessRuntime
from dsh_tools import (
    Accept,
    PostToolDecision,
    ToolExecutionResult,
    ToolsPostExecute,
    ToolSuccess,
    ToolToken,
)
from dsh_tools.presentation import SearchResult
from dsh_tools.testing import code_of, text_of, tool_bench


@pytest.fixture(params=["alone", "through ctx.subprocess"])
def managed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param != "alone")


@asynccontextmanager
async def bench(root: Path, managed: bool, **config: object) -> AsyncIterator["Bench"]:
    async with tool_bench() as tools:
        if managed:
            await tools.ctx.plugin(SubprocessRuntime)
        await tools.ctx.plugin(dsh_fs, {"root": root, **config})
        await tools.ctx.settled()
        with anyio.fail_after(10):
            yield Bench(tools, root)


class Bench(FileBench):
    """An agent that searches in a folder."""

    async def paths(self, pattern: str, **arguments: object) -> list[str]:
        return cast(
            "list[str]", value_of(await self.run("glob", pattern=pattern, **arguments))["paths"]
        )

    async def matches(self, pattern: str, **arguments: object) -> list[tuple[str, int, str]]:
        value = value_of(await self.run("grep", pattern=pattern, **arguments))
        return sorted((each["path"], each["line"], each["text"]) for each in value["matches"])


def value_of(result: ToolExecutionResult) -> dict[str, Any]:
    assert isinstance(result, ToolSuccess), text_of(result)
    return cast("dict[str, Any]", result.value)


def put(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    names = ["a.py", "src/b.py", "src/deep/c.py", "src/deep/d.txt", ".hidden/e.py", ".git/f.py"]
    for number, name in enumerate(names):
        path = put(tmp_path / name, f"needle {number}\n")
        os.utime(path, (1000 - number, 1000 - number))
    (tmp_path / "link.py").symlink_to("a.py")
    (tmp_path / "loop").symlink_to(".")
    return tmp_path


# ---- glob -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.py", [".hidden/e.py", "src/deep/c.py", "src/b.py", "a.py"]),
        ("src/*.py", ["src/b.py"]),
        ("src/**/*.py", ["src/deep/c.py", "src/b.py"]),
        ("/a.py", ["a.py"]),
        ("src/deep/{c,d}.*", ["src/deep/d.txt", "src/deep/c.py"]),
        ("[!ab].py", [".hidden/e.py", "src/deep/c.py"]),
        ("?.txt", ["src/deep/d.txt"]),
        ("**/deep/**", ["src/deep/d.txt", "src/deep/c.py"]),
        ("nothing", []),
        ("a\\.py", ["a.py"]),
        ("(a).py", []),
    ],
)
async def test_C33_globs_in_order_of_modification(
    tree: Path, managed: bool, pattern: str, names: list[str]
) -> None:
    async with bench(tree, managed) as b:
        assert await b.paths(pattern) == names


async def test_C33_ignore_files_do_not_hide_files_from_glob(tree: Path, managed: bool) -> None:
    put(tree / ".gitignore", "*.py\n")
    async with bench(tree, managed) as b:
        assert "a.py" in await b.paths("*.py")


@pytest.mark.parametrize("pattern", ["", "/", "[a", "{a,b", "a\0b"])
async def test_C36_malformed_globs(tree: Path, managed: bool, pattern: str) -> None:
    async with bench(tree, managed) as b:
        result = await b.run("glob", pattern=pattern)
    assert code_of(result) == ("SEARCH_FAILED" if "\0" in pattern else "SEARCH_INVALID_PATTERN")


async def test_C33_C39_paths_are_relative_to_the_working_directory(
    tree: Path, managed: bool
) -> None:
    async with bench(tree, managed) as b:
        assert await b.paths("*.txt", path="src") == ["src/deep/d.txt"]
        assert await b.paths("deep/*.txt", path="src") == ["src/deep/d.txt"]
        below = b.tools.agent(cwd=str(tree / "src/deep"))
        outside = await b.tools.run_as(below, "glob", pattern="b.py", path="..")
        assert value_of(outside)["paths"] == [str(tree / "src/b.py")]
        assert code_of(await b.run("glob", pattern="*", path="a.py")) == "FS_NOT_DIRECTORY"
        assert code_of(await b.run("glob", pattern="*", path="none")) == "FS_NOT_FOUND"


async def test_C35_C37_over_the_cap_a_sample_or_the_first(tmp_path: Path, managed: bool) -> None:
    for number in range(150):
        path = put(tmp_path / f"many/{number:03}.txt", "")
        os.utime(path, (number, number))
    for number in range(3):
        path = put(tmp_path / f"few{number}/x.txt", "")
        os.utime(path, (500, 500))
    for sample, few in ((True, 3), (False, 0)):
        async with bench(tmp_path, managed, sample_over_cap_glob_results=sample) as b:
            result = await b.run("glob", pattern="*.txt")
        lines = text_of(result).split("\n")
        assert len(value_of(result)["paths"]) == 153
        assert lines[100:] == ["", texts.MORE_FILES.format(shown=100, total=153)]
        assert sum(line.startswith("few") for line in lines) == few
        assert lines[0] == "many/000.txt"


# ---- grep -----------------------------------------------------------------------------------


async def test_C34_grep_by_file_without_hidden_and_ignored_ones(tree: Path, managed: bool) -> None:
    put(tree / ".git/HEAD", "")
    put(tree / ".gitignore", "a.py\n")
    async with bench(tree, managed) as b:
        assert await b.matches("needle") == [
            ("src/b.py", 1, "needle 1"),
            ("src/deep/c.py", 1, "needle 2"),
            ("src/deep/d.txt", 1, "needle 3"),
        ]
        assert await b.matches("needle", include="*.{txt,md}") == [
            ("src/deep/d.txt", 1, "needle 3")
        ]
        assert await b.matches(r"^needle \d$", path="src/deep") == [
            ("src/deep/c.py", 1, "needle 2"),
            ("src/deep/d.txt", 1, "needle 3"),
        ]
        # A file that is named is searched, whatever ignore files say.
        assert await b.matches("needle", path="a.py") == [("a.py", 1, "needle 0")]


async def test_C34_C36_what_the_model_reads(tmp_path: Path, managed: bool) -> None:
    put(tmp_path / "f.txt", b"one x\r\ntwo\n\xff x\nlast x")
    async with bench(tmp_path, managed) as b:
        assert text_of(await b.run("grep", pattern="x")) == (
            f"Found 3 matches\n\nf.txt\nLine 1: one x\nLine 3: {texts.NOT_UTF8}\nLine 4: last x"
        )
        assert text_of(await b.run("grep", pattern="two")) == "Found 1 match\n\nf.txt\nLine 2: two"
        assert text_of(await b.run("grep", pattern="nope")) == "No matches found"
        assert len(await b.matches(" ")) == 3


async def test_C35_long_lines_are_cut_between_characters(tmp_path: Path, managed: bool) -> None:
    put(tmp_path / "f.txt", "x" + "\u20ac" * 1000 + "\n")
    async with bench(tmp_path, managed) as b:
        result = await b.run("grep", pattern="x")
    shown = text_of(result).split("Line 1: ")[1]
    assert shown == "x" + "\u20ac" * 666 + " (line truncated)"
    assert len(value_of(result)["matches"][0]["text"]) == 1001


async def test_C35_C38_more_matches_than_are_shown(tmp_path: Path, managed: bool) -> None:
    put(tmp_path / "f.txt", "x\n" * 400)
    async with bench(tmp_path, managed) as b:
        result = await b.run("grep", pattern="x")
        text = text_of(result)
        definition = b.tools.tools.get("grep")
    assert text.startswith("Found 250 of 400 matches\n\nf.txt\nLine 1: x\n")
    assert text.endswith("Line 250: x")
    assert len(value_of(result)["matches"]) == 400
    assert definition is not None
    assert definition.present_result is not None
    view = definition.present_result({"pattern": "x"}, result)
    assert view == SearchResult(shape="matches", truncated=True, total=400)


@pytest.mark.parametrize("pattern", ["(", "[", "a\nb", ""])
async def test_C36_malformed_expressions(tree: Path, managed: bool, pattern: str) -> None:
    async with bench(tree, managed) as b:
        assert code_of(await b.run("grep", pattern=pattern)) == "SEARCH_INVALID_PATTERN"


@pytest.mark.parametrize("include", ["!*.py", "*.py,*.txt", " ", "{a,b}.py,c"])
async def test_C34_include_is_one_positive_glob(tree: Path, managed: bool, include: str) -> None:
    async with bench(tree, managed) as b:
        result = await b.run("grep", pattern="x", include=include)
    assert code_of(result) == "SEARCH_INVALID_PATTERN"


# ---- attacks --------------------------------------------------------------------------------


async def test_C32_C125_values_never_become_options(tmp_path: Path, managed: bool) -> None:
    put(tmp_path / "-e", "--pre=touch x\n")
    put(tmp_path / "--files", "plain\n")
    put(tmp_path / "!bang", "plain\n")
    put(tmp_path / "new\nline.txt", "plain\n")
    put(tmp_path / "-dir/f", "plain\n")
    async with bench(tmp_path, managed) as b:
        assert await b.matches("--pre=touch") == [("-e", 1, "--pre=touch x")]
        assert await b.matches("-f/etc/hostname") == []
        assert await b.matches("plain", path="--files") == [("--files", 1, "plain")]
        assert await b.matches("plain", path="-dir") == [("-dir/f", 1, "plain")]
        assert await b.matches("plain", include="-*") == [("--files", 1, "plain")]
        assert await b.paths("--pre=*") == []
        assert sorted(await b.paths("-*")) == ["--files", "-e"]
        assert await b.paths("!bang") == ["!bang"]
        assert await b.paths("f", path="-dir") == ["-dir/f"]
        assert await b.paths("*line*") == ["new\nline.txt"]
        assert text_of(await b.run("glob", pattern="*line*")) == '"new\\nline.txt"'
        lines = text_of(await b.run("grep", pattern="plain", include="new*")).split("\n")
        assert lines == ["Found 1 match", "", '"new\\nline.txt"', "Line 1: plain"]


async def test_C32_the_users_own_configuration_of_ripgrep_is_not_read(
    tmp_path: Path, managed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "f", "x\n")
    monkeypatch.setenv(
        "RIPGREP_CONFIG_PATH", str(put(tmp_path / "rc", "--invert-match\n--hidden\n"))
    )
    async with bench(tmp_path, managed) as b:
        assert await b.matches("^x$") == [("f", 1, "x")]


async def test_a_pipe_is_refused_and_does_not_stop_a_search(tmp_path: Path, managed: bool) -> None:
    os.mkfifo(tmp_path / "pipe")
    put(tmp_path / "f", "x\n")
    async with bench(tmp_path, managed) as b:
        assert await b.matches("x") == [("f", 1, "x")]
        assert code_of(await b.run("grep", pattern="x", path="pipe")) == "FS_NOT_REGULAR_FILE"
        assert code_of(await b.run("grep", pattern="x", path="/dev/zero")) == "FS_NOT_REGULAR_FILE"


async def test_C36_too_much_raw_output_is_an_error(tmp_path: Path, managed: bool) -> None:
    put(tmp_path / "f", ("x" * 1_000_000 + "\n") * 21)
    async with bench(tmp_path, managed) as b:
        assert code_of(await b.run("grep", pattern="^x")) == "SEARCH_RAW_OUTPUT_OVERFLOW"


class _Fake(msgspec.Struct):
    """A runtime with one answer; if it waits, with the call's signal only."""

    exit_code: int | None = None
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_lossy: bool = False
    timed_out: bool = False
    waits: bool = False
    started: anyio.Event = msgspec.field(default_factory=anyio.Event)

    async def collect(self, argv: Sequence[str], **options: Any) -> "_Fake":
        assert argv[1] == "--no-config"
        self.started.set()
        if self.waits:
            await options["signal"].wait()
        return self


async def test_C36_an_aborted_search_says_so(tree: Path) -> None:
    endless = _Fake(waits=True)
    async with bench(tree, managed=False) as b:
        b.tools.ctx.provide("subprocess", endless)
        controller = AbortController()
        call = b.tools.call("grep", {"pattern": "x"}, agent=b.agent, signal=controller.signal)
        results: list[ToolExecutionResult] = []

        async def run() -> None:
            results.append(await b.tools.tools.execute(call))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await endless.started.wait()
            controller.abort()
    assert code_of(results[0]) == "SEARCH_ABORTED"


async def test_C36_a_search_that_takes_too_long_is_aborted(tree: Path) -> None:
    async with bench(tree, managed=False) as b:
        b.tools.ctx.provide("subprocess", _Fake(timed_out=True))
        result = await b.run("glob", pattern="*")
    assert code_of(result) == "SEARCH_ABORTED"
    assert "30000ms" in text_of(result)


async def test_C36_the_runner_of_its_own_ends_with_the_signal_and_the_limit() -> None:
    runner = search_alone()
    controller = AbortController()
    limits: dict[str, Any] = {"cwd": "/", "stdout_bytes": 10, "stderr_bytes": 10, "grace_ms": 1}
    with anyio.fail_after(5):
        ran = await runner.collect(["sleep", "60"], timeout_ms=10, **limits)
        assert (ran.timed_out, ran.exit_code) == (True, -9)
        ran = await runner.collect(["seq", "100"], timeout_ms=5000, **limits)
        assert (ran.stdout, ran.stdout_lossy, ran.exit_code) == (b"98\n99\n100\n", True, 0)
        controller.abort()
        ran = await runner.collect(
            ["sleep", "60"], timeout_ms=60_000, signal=controller.signal, **limits
        )
        assert not ran.timed_out


@pytest.mark.parametrize(
    ("stderr", "code"),
    [
        (b"rg: ./closed: Permission denied (os error 13)\n", None),
        (b"rg: ./gone: No such file or directory (os error 2)\nrg: broken\n", "SEARCH_FAILED"),
        (b"", "SEARCH_FAILED"),
    ],
)
async def test_C36_what_cannot_be_read_is_skipped_and_counted(
    tree: Path, stderr: bytes, code: str | None
) -> None:
    async with bench(tree, managed=False) as b:
        b.tools.ctx.provide("subprocess", _Fake(exit_code=2, stdout=b"./a.py\0", stderr=stderr))
        result = await b.run("glob", pattern="*")
    assert code_of(result) == code
    if code is None:
        assert text_of(result) == f"a.py\n{texts.SKIPPED.format(count=1)}"


# ---- the partners ---------------------------------------------------------------------------


async def test_C38_what_was_capped_is_saved_whole(tmp_path: Path) -> None:
    put(tmp_path / "w/f.txt", "x\n" * 400)
    async with bench(tmp_path / "w", managed=True) as b:
        await b.tools.ctx.plugin(SpillStore, tmp_path / "spill")
        result = await b.run("grep", pattern="x")
        saved = text_of(result).rpartition("whole result is in ")[2].partition(":")[0]
        assert "Line 400: x" in await anyio.Path(saved).read_text("utf-8")
        assert len(value_of(result)["matches"]) == 400
        assert "whole result" not in text_of(await b.run("grep", pattern="nothing"))
        nested = b.tools.call("grep", {"pattern": "x"}, agent=b.agent, parent=ToolToken())
        assert "whole result" not in text_of(await b.tools.tools.execute(nested))


async def test_C38_a_result_that_policy_replaced_is_left_alone(tmp_path: Path) -> None:
    put(tmp_path / "f.txt", "x\n" * 400)

    async def replace(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
        return Accept(content="replaced")

    async with bench(tmp_path, managed=True) as b:
        await b.tools.ctx.plugin(SpillStore, tmp_path / "spill")
        b.tools.ctx.on(ToolsPostExecute, replace)
        assert text_of(await b.run("grep", pattern="x")) == "replaced"
    assert not (tmp_path / "spill").exists()


async def test_C38_where_saving_fails_the_capped_text_stays_and_says_so(tmp_path: Path) -> None:
    put(tmp_path / "f.txt", "x\n" * 400)
    async with bench(tmp_path, managed=True) as b:
        await b.tools.ctx.plugin(SpillStore, put(tmp_path / "no-folder", ""))
        text = text_of(await b.run("grep", pattern="x"))
    assert text.startswith("Found 250 of 400 matches")
    assert text.endswith(texts.NOT_SAVED)


async def test_C118_the_search_tools_work_with_all_of_dsh_shell(tmp_path: Path) -> None:
    put(tmp_path / "f.txt", "x\n")
    async with tool_bench() as tools:
        await tools.ctx.plugin(dsh_fs, {"root": tmp_path})
        async with tools.ctx.plugin(dsh_shell, {"spill_root": tmp_path / "s"}):
            await tools.ctx.settled()
            assert "f.txt" in text_of(await tools.run("grep", pattern="x"))
        # The runtime is gone again; the next call does without it.
        assert "f.txt" in text_of(await tools.run("grep", pattern="x"))


def test_the_runtime_fits_what_the_search_expects() -> None:
    fits: type[RunsCommands] = SubprocessRuntime
    assert fits.collect is not None
