"""The file tools through the whole pipeline, with and without the observation policy."""

import hashlib
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dsh_fs
from dsh_cordis import ConfigError, Next
from dsh_fs import FsObserved, FsVersion, FsWriteIntent, WriteExpectation, texts
from dsh_fs._cards import change_meta  # noqa: PLC2701  # held by a property
from dsh_fs.testing import FileBench, file_bench
from dsh_system_prompt import render_prompt
from dsh_tools import ToolExecutionResult, ToolSuccess
from dsh_tools.presentation import DiffCall, DiffResult
from dsh_tools.testing import code_of, text_of, tool_bench


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
    return path


def got(path: Path) -> str:
    return path.read_bytes().decode()


def value_of(result: ToolExecutionResult) -> object:
    assert isinstance(result, ToolSuccess), text_of(result)
    return result.value


async def test_C26_C28_read_shows_numbered_lines(tmp_path: Path) -> None:
    put(tmp_path / "f.txt", "one\r\ntwo\x0c\u2028x\rthree\n\nfive")
    async with file_bench(tmp_path) as b:
        result = await b.run("read", file_path="f.txt")
        path = str(tmp_path / "f.txt")
        lines = ["one", "two\x0c\u2028x\rthree", "", "five"]
        assert value_of(result) == {
            "path": path,
            "offset": 1,
            "lines": [{"number": n, "text": t} for n, t in enumerate(lines, 1)],
            "totalLines": 4,
        }
        assert text_of(result) == (
            f"<path>{path}</path>\n<type>file</type>\n<content>\n"
            "1: one\n2: two\x0c\u2028x\rthree\n3: \n4: five\n"
            "\n(End of file - total 4 lines)\n</content>"
        )


async def test_C24_C27_windows(tmp_path: Path) -> None:
    put(tmp_path / "f", "".join(f"l{n}\n" for n in range(1, 11)))
    put(tmp_path / "empty", "")
    async with file_bench(tmp_path) as b:
        middle = await b.run("read", file_path="f", offset=3, limit=2.0)
        assert "3: l3\n4: l4\n\n(Showing lines 3-4 of 10. Use offset=5 to continue.)" in text_of(
            middle
        )
        last = await b.run("read", file_path="f", offset=10)
        assert "10: l10\n\n(End of file - total 10 lines)" in text_of(last)
        assert code_of(await b.run("read", file_path="f", offset=11)) == "FS_NOT_FOUND"
        assert value_of(await b.run("read", file_path="empty")) == {
            "path": str(tmp_path / "empty"),
            "offset": 1,
            "lines": [],
            "totalLines": 0,
        }
        assert code_of(await b.run("read", file_path="empty", offset=2)) == "FS_NOT_FOUND"
        for bad in ({"offset": 0}, {"limit": -1}, {"offset": 1.5}):
            refused = await b.run("read", file_path="f", **bad)
            assert "positive whole number" in text_of(refused)
            assert code_of(refused) is None


async def test_C25_long_lines_and_large_files_are_capped(tmp_path: Path) -> None:
    put(tmp_path / "long", "é" * 2001 + "\n" + "é" * 2000)
    put(tmp_path / "large", ("x" * 99 + "\n") * 3000)
    async with file_bench(tmp_path) as b:
        lines = text_of(await b.run("read", file_path="long")).split("\n")
        assert lines[3] == "1: " + "é" * 2000 + "... (line truncated to 2000 chars)"
        assert lines[4] == "2: " + "é" * 2000
        shown = text_of(await b.run("read", file_path="large"))
        assert "(Output capped. Showing lines 1-512. Use offset=513 to continue.)" in shown
        rest = text_of(await b.run("read", file_path="large", offset=2999))
        assert "(End of file - total 3000 lines)" in rest
        counted = text_of(await b.run("read", file_path="large", limit=2))
        assert "(Showing lines 1-2 of 3000. Use offset=3 to continue.)" in counted


async def test_C29_write_and_edit(tmp_path: Path) -> None:
    async with file_bench(tmp_path) as b:
        path = str(tmp_path / "f.txt")
        made = await b.run("write", file_path="f.txt", content="a b a\n")
        assert text_of(made) == f"The file {path} has been created successfully."
        assert value_of(made) == {
            "path": path,
            "operation": "create",
            "before": None,
            "after": "a b a\n",
        }
        one = await b.run("edit", file_path="f.txt", old_string="b", new_string="c")
        assert text_of(one) == f"The file {path} has been updated successfully."
        every = await b.run(
            "edit", file_path="f.txt", old_string="a", new_string="z", replace_all=True
        )
        assert "All occurrences were successfully replaced" in text_of(every)
        assert got(tmp_path / "f.txt") == "z c z\n"
        same = await b.run("edit", file_path="gone", old_string="a", new_string="a")
        assert "nothing would change" in text_of(same)
        empty = await b.run("edit", file_path="gone", old_string="", new_string="a")
        assert "use write" in text_of(empty)


async def test_C20_C22_what_was_not_read_is_neither_overwritten_nor_edited(tmp_path: Path) -> None:
    path = put(tmp_path / "f", "old")
    async with file_bench(tmp_path) as b:
        for result in (
            await b.run("write", file_path="f", content="new"),
            await b.run("edit", file_path="f", old_string="old", new_string="new"),
        ):
            assert code_of(result) == "FS_NOT_OBSERVED"
            assert text_of(result).endswith("read it, then retry")
            assert str(path) in text_of(result)
        await b.run("read", file_path="f", limit=1)
        assert not (await b.run("edit", file_path="f", old_string="old", new_string="x")).is_error
        assert not (await b.run("write", file_path="f", content="y")).is_error
        put(path, "someone else")
        stale = await b.run("write", file_path="f", content="new")
        assert code_of(stale) == "FS_STALE_VERSION"
        assert text_of(stale).endswith("read it again, then retry")
        assert got(path) == "someone else"


async def test_C20_a_confirmed_absence_allows_creating_and_explains_editing(
    tmp_path: Path,
) -> None:
    async with file_bench(tmp_path) as b:
        assert code_of(await b.run("read", file_path="f")) == "FS_NOT_FOUND"
        edited = await b.run("edit", file_path="f", old_string="a", new_string="b")
        assert code_of(edited) == "FS_NOT_FOUND"
        assert not (await b.run("write", file_path="f", content="a")).is_error
        assert not (await b.run("edit", file_path="f", old_string="a", new_string="b")).is_error


async def test_C19_C21_memory_is_per_agent_and_needs_an_actor(tmp_path: Path) -> None:
    put(tmp_path / "f", "old")
    async with file_bench(tmp_path) as b:
        await b.run("read", file_path="f")
        other = b.tools.agent(cwd=str(tmp_path))
        refused = await b.tools.run_as(other, "write", file_path="f", content="x")
        assert code_of(refused) == "FS_NOT_OBSERVED"
        await b.tools.run("read", file_path="f")
        nobody = await b.tools.run("edit", file_path="f", old_string="old", new_string="x")
        assert code_of(nobody) == "FS_NOT_OBSERVED"


async def test_C23_without_the_policy_changes_are_unconditional(tmp_path: Path) -> None:
    put(tmp_path / "f", "old")
    async with file_bench(tmp_path, require_read=False) as b:
        assert not (await b.run("write", file_path="f", content="new")).is_error
        assert not (await b.run("edit", file_path="f", old_string="new", new_string="x")).is_error
    assert got(tmp_path / "f") == "x"


async def test_C17_C18_intents_and_observations(tmp_path: Path) -> None:
    put(tmp_path / "f", "old")
    async with file_bench(tmp_path, require_read=False) as b:
        seen: list[tuple[str, bool]] = []

        def observed(event: FsObserved) -> None:
            seen.append((event.target.display_path, isinstance(event.version, FsVersion)))
            assert event.actor is b.agent.session
            if len(seen) == 4:
                raise RuntimeError("observer")

        async def refuse(
            event: FsWriteIntent, next_: Next[WriteExpectation | None]
        ) -> WriteExpectation | None:
            raise PermissionError("not this one")

        b.tools.ctx.on(FsObserved, observed)
        await b.run("read", file_path="f")
        await b.run("read", file_path="missing")
        await b.run("write", file_path="f", content="a")
        failed = await b.run("edit", file_path="f", old_string="a", new_string="b")
        assert seen == [
            (str(tmp_path / "f"), True),
            (str(tmp_path / "missing"), False),
            (str(tmp_path / "f"), True),
            (str(tmp_path / "f"), True),
        ]
        assert (text_of(failed), got(tmp_path / "f")) == ("Error: observer", "b")
        b.tools.ctx.on(FsWriteIntent, refuse, prepend=True)
        assert text_of(await b.run("write", file_path="f", content="x")) == "Error: not this one"
        assert got(tmp_path / "f") == "b"


async def test_C5_relative_paths_start_at_the_sessions_folder(tmp_path: Path) -> None:
    put(tmp_path / "sub/f", "below")
    put(tmp_path / "f", "root")
    async with file_bench(tmp_path) as b:
        below = b.tools.agent(cwd=str(tmp_path / "sub"))
        assert "1: below" in text_of(await b.tools.run_as(below, "read", file_path="f"))
        assert "1: root" in text_of(await b.tools.run_as(below, "read", file_path="../f"))
        assert "1: root" in text_of(await b.tools.run("read", file_path="f"))


@pytest.mark.parametrize(
    "path", ["out", "out/secret", "file", "dangling", "../o/secret", "{o}/secret", "alias/out"]
)
@pytest.mark.parametrize("through_a_link", [False, True])
async def test_C58_case_36_escapes_are_error_results_of_every_tool(
    tmp_path: Path, path: str, through_a_link: bool
) -> None:
    root, outside = tmp_path / "w", tmp_path / "o"
    put(outside / "secret", "secret")
    put(root / "in", "inside")
    (root / "out").symlink_to(outside)
    (root / "file").symlink_to(outside / "secret")
    (root / "dangling").symlink_to(outside / "new")
    (root / "alias").symlink_to(".")
    (tmp_path / "door").symlink_to(root)
    path = path.format(o=outside)
    async with file_bench(tmp_path / "door" if through_a_link else root, confine=True) as b:
        for result in (
            await b.run("read", file_path=path),
            await b.run("write", file_path=path, content="x"),
            await b.run("edit", file_path=path, old_string="a", new_string="b"),
            await b.run("glob", pattern="*", path=path),
            await b.run("grep", pattern="secret", path=path),
        ):
            assert code_of(result) == "FS_SANDBOX_DENIED"
            assert "outside the workspace" in text_of(result)
        # What leads out is not even found, and what stays inside works.
        assert text_of(await b.run("glob", pattern="**")) == "in"
        assert text_of(await b.run("grep", pattern="secret")) == "No matches found"
        assert "1: inside" in text_of(await b.run("read", file_path="alias/in"))
    assert got(outside / "secret") == "secret"
    assert not (outside / "new").exists()


async def test_T38_names_parameters_and_required_are_the_references(tmp_path: Path) -> None:
    async with file_bench(tmp_path) as b:
        shapes = {
            schema.name: {
                name: (node["type"], name in schema.parameters.get("required", []))  # type: ignore[index, call-overload, operator]  # plain JSON
                for name, node in schema.parameters["properties"].items()  # type: ignore[union-attr]  # plain JSON
            }
            for schema in b.tools.tools.schemas()
        }
    assert shapes == {
        "read": {
            "file_path": ("string", True),
            "offset": ("number", False),
            "limit": ("number", False),
        },
        "write": {"file_path": ("string", True), "content": ("string", True)},
        "edit": {
            "file_path": ("string", True),
            "old_string": ("string", True),
            "new_string": ("string", True),
            "replace_all": ("boolean", False),
        },
        "glob": {"pattern": ("string", True), "path": ("string", False)},
        "grep": {
            "pattern": ("string", True),
            "path": ("string", False),
            "include": ("string", False),
        },
    }


async def test_C24_C29_C39_only_read_may_overlap(tmp_path: Path) -> None:
    async with file_bench(tmp_path) as b:
        arguments: dict[str, dict[str, object]] = {
            "read": {"file_path": "f"},
            "write": {"file_path": "f", "content": ""},
            "edit": {"file_path": "f", "old_string": "a", "new_string": "b"},
            "glob": {"pattern": "*"},
            "grep": {"pattern": "x"},
        }
        modes = {
            name: b.tools.tools.execution_mode(b.tools.call(name, given))
            for name, given in arguments.items()
        }
        assert modes == {
            "read": "parallel",
            "write": "exclusive",
            "edit": "exclusive",
            "glob": "exclusive",
            "grep": "exclusive",
        }
        timeouts = {
            name: found.timeout_ms for name in arguments if (found := b.tools.tools.get(name))
        }
        limits = {"read": None, "write": None, "edit": None, "glob": 30_000, "grep": 30_000}
        assert timeouts == limits


async def test_C29_the_pending_card_of_write_has_no_old_text(tmp_path: Path) -> None:
    async with file_bench(tmp_path) as b:
        write = b.tools.tools.get("write")
        assert write is not None
        assert write.present_call is not None
        view = write.present_call({"file_path": "f", "content": "x"})
        assert isinstance(view, DiffCall)
        assert view.diffs[0].old_text is None
        assert write.present_call({"file_path": 1}) is None


def card(b: FileBench, name: str, result: ToolExecutionResult, **arguments: object) -> object:
    definition = b.tools.tools.get(name)
    assert definition is not None
    assert definition.present_result is not None
    return definition.present_result(arguments, result)


async def test_C29_cards_show_each_change_with_three_lines_around_it(tmp_path: Path) -> None:
    lines = [f"line {number}" for number in range(40)]
    put(tmp_path / "f", "\r\n".join(lines))
    async with file_bench(tmp_path) as b:
        await b.run("read", file_path="f")
        change = {"file_path": "f", "old_string": "0", "new_string": "zero", "replace_all": True}
        result = await b.run("edit", **change)
        view = card(b, "edit", result, **change)
    path = str(tmp_path / "f")
    assert isinstance(view, DiffResult)
    assert [diff.path for diff in view.diffs] == [path] * 4
    assert view.diffs[0].old_text == "line 0\nline 1\nline 2\nline 3\n"
    assert view.diffs[0].new_text == "line zero\nline 1\nline 2\nline 3\n"
    around = ["line 7", "line 8", "line 9", "line 1zero", "line 11", "line 12", "line 13", ""]
    assert view.diffs[1].new_text == "\n".join(around)
    assert view.diffs[3].old_text == "\n".join([*lines[27:34], ""])


async def test_C29_cards_of_new_same_and_large_files(tmp_path: Path) -> None:
    big = "".join(f"{number}\n" for number in range(20_000))
    put(tmp_path / "big", big)
    async with file_bench(tmp_path, require_read=False) as b:
        created = {"file_path": "new", "content": "x"}
        assert card(b, "write", await b.run("write", **created), **created) is None
        view = card(b, "write", await b.run("write", **created), **created)
        assert view == DiffResult(())
        swapped = {"file_path": "big", "content": big.replace("0", "o")}
        assert card(b, "write", await b.run("write", **swapped), **swapped) is None
        small = {"file_path": "big", "old_string": "\n777\n", "new_string": "\n\n"}
        view = card(b, "edit", await b.run("edit", **small), **small)
        assert isinstance(view, DiffResult)
        [diff] = view.diffs
        assert diff.new_text == "774\n775\n776\n\n778\n779\n78o\n"
        failed = await b.run("edit", file_path="none", old_string="a", new_string="b")
        assert card(b, "edit", failed, **small) is None


@given(st.text(alphabet="ab\n\r"), st.text(alphabet="ab\n\r"))
def test_C29_hunks_hold_every_change(old: str, new: str) -> None:
    meta = change_meta(None, {"path": "p", "before": old, "after": new})
    known = cast("dict[str, list[dict[str, str]]]", meta)
    hunks = [(hunk["old"], hunk["new"]) for hunk in known["hunks"]]
    assert bool(hunks) is (old != new)
    place = 0
    rebuilt = ""
    for before, after in hunks:
        start = old.index(before, place)
        rebuilt += old[place:start] + after
        place = start + len(before)
    if len(hunks) < 2:  # with more, the same lines may stand in several places
        assert rebuilt + old[place:] == new or old.count(hunks[0][0] if hunks else "") > 1


async def test_T109_C107_sections_stand_in_their_places_as_long_as_the_plugin(
    tmp_path: Path,
) -> None:
    async with tool_bench() as tools:
        async with tools.ctx.plugin(dsh_fs, {"root": tmp_path, "confine": True}):
            await tools.ctx.settled()
            assembled = await tools.ctx.system_prompt.assemble(None)
            assert [section.name for section in assembled.sections][2:] == [
                "tool:read",
                "tool:write",
                "tool:edit",
                "tool:glob",
                "tool:grep",
            ]
            assert texts.CONFINED in render_prompt(assembled)
        assert len((await tools.ctx.system_prompt.assemble(None)).sections) == 2
        assert tools.tools.names() == []


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"root": "{here}/none"}, "none' is no directory; name an existing one"),
        ({"root": "{here}/file"}, "file' is no directory; name an existing one"),
        ({"root": 3}, "root"),
        ({"roots": "."}, "roots"),
        ({"confine": "perhaps"}, "confine"),
        ({"require_read": None}, "require_read"),
    ],
)
async def test_C109_wrong_configuration_is_refused(
    tmp_path: Path, config: dict[str, object], told: str
) -> None:
    put(tmp_path / "file", "")
    given = {k: v.format(here=tmp_path) if isinstance(v, str) else v for k, v in config.items()}
    async with tool_bench() as tools:
        with pytest.raises(ConfigError) as caught:
            await tools.ctx.plugin(dsh_fs, given)
        assert told in str(caught.value)
        assert tools.tools.names() == []


def test_C119_texts_for_the_model_change_on_purpose_only() -> None:
    everything = "\n".join(
        f"{name}={text}" for name, text in sorted(vars(texts).items()) if name.isupper()
    )
    assert hashlib.sha256(everything.encode()).hexdigest() == TEXTS_DIGEST


TEXTS_DIGEST = "59dbe05c06369a416cfb9481e2e6e4a50c7be1d06af7df993b360a17e1b5237c"
