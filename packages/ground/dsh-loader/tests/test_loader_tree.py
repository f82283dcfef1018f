import sys
from collections.abc import Iterator
from types import ModuleType
from typing import ClassVar

import anyio
import pytest

from dsh_cordis import Context, Fiber, FiberState, Service
from dsh_loader import (
    BootError,
    ExpressionError,
    PluginNotFound,
    Row,
    RowError,
    RowsError,
    RowTree,
    load_rows,
)

pytest_plugins = ["dsh_cordis.testing"]

log: list[str] = []
running: dict[str, Context] = {}


class BodyError(Exception):
    pass


def speaker(ctx: Context, config: dict[str, object] | None) -> object:
    word = (config or {}).get("word", "nothing")
    if word == "bad":
        raise BodyError("a bad word")
    log.append(f"+{word}")
    running[str(word)] = ctx
    return lambda: log.append(f"-{word}")


def other(ctx: Context, config: dict[str, object] | None) -> object:
    log.append("+other")
    return lambda: log.append("-other")


def failing(ctx: Context) -> None:
    raise BodyError("in the body")


def provider(ctx: Context, config: dict[str, object] | None) -> None:
    ctx.provide("thing", (config or {}).get("value"))


def consumer(ctx: Context) -> object:
    thing = ctx.thing
    log.append(f"+consumer {thing}")
    return lambda: log.append(f"-consumer {thing}")


consumer.inject = ["thing"]  # type: ignore[attr-defined]  # how a function declares its needs


class Dial(Service):
    key: ClassVar[str] = "dial"

    def __init__(self, ctx: Context, config: object = None) -> None:
        super().__init__(ctx)
        self.level = 7

    def seen(self) -> dict[str, object]:
        return self.intercepted()


class UsesDial(Context):
    dial: Dial


def dialled(ctx: UsesDial) -> None:
    log.append(f"dial {ctx.dial.seen()}")


MODULE = "loader_tree_sample"


@pytest.fixture(autouse=True)
def sample() -> Iterator[None]:
    """Make the plugins above importable under a name that rows can write."""
    module = ModuleType(MODULE)
    for body in (speaker, other, failing, provider, consumer, Dial, dialled):
        setattr(module, body.__name__, body)
    sys.modules[module.__name__] = module
    log.clear()
    running.clear()
    yield
    del sys.modules[module.__name__]


def row(name: str, plugin: str = "speaker", **fields: object) -> Row:
    return Row.model_validate({"id": name, "use": f"{MODULE}:{plugin}", **fields})


def say(name: str, word: str, **fields: object) -> Row:
    return row(name, "speaker", config={"word": word}, **fields)


def group(name: str, *rows: Row, **fields: object) -> Row:
    return Row.model_validate({"id": name, "group": True, "rows": rows, **fields})


def present(tree: RowTree, name: str) -> Fiber:
    fiber = tree.fiber(name)
    assert fiber is not None
    return fiber


async def test_K110_a_waiting_row_counts_as_started_when_rows_are_applied(ctx: Context) -> None:
    tree = RowTree(ctx)
    with anyio.fail_after(5):
        await tree.apply([row("waits", "consumer")])
        assert present(tree, "waits").state is FiberState.PENDING
        await tree.apply([row("waits", "consumer"), row("gives", "provider", config={"value": 1})])
    assert log == ["+consumer 1"]


async def test_K113_a_group_holds_rows_and_disabling_it_switches_off_what_is_below(
    ctx: Context,
) -> None:
    tree = RowTree(ctx)
    inner = group("inner", say("deep", "deep"), disabled=True)
    with anyio.fail_after(5):
        await tree.boot([group("outer", say("flat", "flat"), inner)])
        assert log == ["+flat"]
        assert present(tree, "inner").state is FiberState.ACTIVE
        await tree.apply([group("outer", say("flat", "flat"), inner, disabled=True)])
        assert log == ["+flat", "-flat"]
        assert present(tree, "outer").state is FiberState.ACTIVE
        assert tree.fiber("inner") is None
        opened = group("inner", say("deep", "deep"))
        await tree.apply([group("outer", say("flat", "flat"), opened, disabled=True)])
        assert log == ["+flat", "-flat"]
        await tree.apply([group("outer", say("flat", "flat"), opened)])
    assert sorted(log[2:]) == ["+deep", "+flat"]


async def test_K113_rows_below_a_group_inherit_its_realms_and_intercepts(ctx: Context) -> None:
    tree = RowTree(ctx)
    rows = [
        row("dial", "Dial"),
        row("outside", "provider", config={"value": "outside"}),
        group(
            "room",
            row("inside", "provider", config={"value": "inside"}),
            row("reads", "consumer"),
            row("uses", "dialled"),
            isolate={"thing": True},
            intercept={"dial": {"step": 2}},
        ),
        row("reads-too", "consumer"),
    ]
    with anyio.fail_after(5):
        await tree.boot(rows)
    assert sorted(log) == ["+consumer inside", "+consumer outside", "dial {'step': 2}"]


async def test_K114_a_label_is_shared_and_changing_it_restarts_only_what_it_concerns(
    ctx: Context,
) -> None:
    tree = RowTree(ctx)
    blue = {"isolate": {"thing": "blue"}}
    plain = row("plain", "provider", config={"value": "plain"})
    painted = row("painted", "provider", config={"value": "blue"}, **blue)
    quiet = group("quiet", say("bystander", "still"))
    with anyio.fail_after(5):
        await tree.boot([plain, painted, row("reads", "consumer"), quiet])
        assert log[-1:] != ["+consumer blue"]
        del log[:]
        moved = group("quiet", say("bystander", "still"), **blue)
        await tree.apply([plain, painted, row("reads", "consumer", **blue), moved])
        assert log == ["-consumer plain", "+consumer blue"]
        await tree.apply([plain, painted, row("reads", "consumer", **blue), moved])
    assert len(log) == 2


async def test_K114_a_row_moved_between_groups_keeps_running(ctx: Context) -> None:
    tree = RowTree(ctx)
    with anyio.fail_after(5):
        await tree.boot([group("a", say("x", "x")), group("b")])
        fiber = present(tree, "x")
        await tree.apply([group("a"), group("b", say("x", "x"))])
        assert (tree.fiber("x"), log) == (fiber, ["+x"])
        await tree.apply([group("b", say("x", "x"))])
        assert (tree.fiber("x"), log) == (fiber, ["+x"])
        await tree.apply([])
    assert log == ["+x", "-x"]


async def test_K115_a_plugin_that_changes_or_disposes_itself_is_saved(ctx: Context) -> None:
    saved: list[list[Row]] = []
    tree = RowTree(ctx, on_save=saved.append)
    with anyio.fail_after(5):
        await tree.boot([group("g", say("x", "one")), say("y", "other")])
        await present(tree, "x").update({"word": "two"})
        assert saved == [[group("g", say("x", "two")), say("y", "other")]]
        await present(tree, "x").dispose()
        assert saved[1:] == [[group("g", say("x", "two", disabled=True)), say("y", "other")]]
        assert tree.rows == saved[1]
        del saved[:]
        await tree.apply([say("y", "changed")])
        await tree.apply([])
    assert saved == []


async def test_K115_neither_failures_nor_the_end_of_the_tree_are_saved() -> None:
    saved: list[list[Row]] = []
    async with Context() as ctx:
        tree = RowTree(ctx, on_save=saved.append)
        await tree.boot([group("g", say("x", "one"))])
        with pytest.raises(BodyError):
            await present(tree, "x").update({"word": "bad"})
    assert saved == []


async def test_K116_config_is_evaluated_at_each_activation_and_kept_as_written(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOADER_WORD", "first")
    tree = RowTree(ctx)
    written = say("x", "${env.LOADER_WORD} ${service.dial.level}", inject=["dial"])
    with anyio.fail_after(5):
        await tree.apply([written])
        assert log == []
        dial = row("dial", "Dial")
        await tree.apply([written, dial])
        assert log == ["+first 7"]
        monkeypatch.setenv("LOADER_WORD", "second")
        await present(tree, "dial").restart()
        await ctx.settled()
    assert log == ["+first 7", "-first 7", "+second 7"]
    assert present(tree, "x").config == written.config
    assert tree.rows == [written, dial]


async def test_K116_a_failing_expression_is_the_failure_of_that_row(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOADER_WORD", raising=False)
    tree = RowTree(ctx)
    with anyio.fail_after(5), pytest.raises(BootError) as caught:
        await tree.boot([say("x", "${env.LOADER_WORD}"), say("y", "fine")])
    assert [(name, type(error)) for name, error in caught.value.failed] == [("x", ExpressionError)]
    assert "row 'x': config.word: the environment has no LOADER_WORD" in caught.value.message
    with anyio.fail_after(5), pytest.raises(RowError, match="neither true nor false"):
        await tree.apply([say("y", "fine", disabled="${env.LOADER_WORD:-perhaps}")])


async def test_K116_disabled_is_evaluated_at_each_mount_decision(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOADER_WORD", raising=False)
    tree = RowTree(ctx)
    with anyio.fail_after(5):
        await tree.boot([say("x", "x", disabled="${not env.LOADER_WORD}")])
        assert log == []
        monkeypatch.setenv("LOADER_WORD", "1")
        await tree.apply([say("x", "x", disabled="${not env.LOADER_WORD}")])
    assert log == ["+x"]


async def test_K117_config_that_a_plugin_hands_to_its_children_is_not_evaluated(
    ctx: Context,
) -> None:
    tree = RowTree(ctx)
    with anyio.fail_after(5):
        await tree.boot([say("x", "x")])
        await running["x"].plugin(speaker, {"word": "${env.HOME}"})
    assert log == ["+x", "+${env.HOME}"]


async def test_K122_a_failing_list_leaves_the_old_tree_running(ctx: Context) -> None:
    tree = RowTree(ctx)
    old = [say("keep", "keep"), say("change", "old"), say("remove", "remove"), say("same", "same")]
    with anyio.fail_after(5):
        await tree.boot(old)
        fibers = {each.id: tree.fiber(each.id) for each in old}
        del log[:]
        new = [
            say("keep", "keep"),
            say("change", "new"),
            say("added", "added"),
            row("fails", "failing"),
            say("same", "same"),
        ]
        with pytest.raises(RowError) as caught:
            await tree.apply(new)
    assert (caught.value.row, caught.value.stage) == ("fails", "apply")
    assert isinstance(caught.value.__cause__, BodyError)
    assert log == ["-old", "+new", "+added", "-added", "-new", "+old"]
    assert tree.rows == old
    assert {each.id: tree.fiber(each.id) for each in old} == fibers


async def test_K122_several_failures_are_one_group_and_imports_come_first(ctx: Context) -> None:
    tree = RowTree(ctx)
    with anyio.fail_after(5):
        await tree.boot([say("x", "x")])
        missing = [Row(id=name, use=f"{MODULE}:nothing_{name}") for name in ("a", "b")]
        with pytest.raises(ExceptionGroup) as caught:
            await tree.apply([say("x", "changed"), *missing])
    stages = [
        (each.row, each.stage) for each in caught.value.exceptions if isinstance(each, RowError)
    ]
    assert stages == [("a", "import"), ("b", "import")]
    assert all(isinstance(each.__cause__, PluginNotFound) for each in caught.value.exceptions)
    assert log == ["+x"]


async def test_K123_a_changed_config_updates_the_same_fiber(ctx: Context) -> None:
    tree = RowTree(ctx)
    with anyio.fail_after(5):
        await tree.boot([say("x", "one")])
        fiber = present(tree, "x")
        await tree.apply([say("x", "two")])
        assert tree.fiber("x") is fiber
        with pytest.raises(RowError):
            await tree.apply([say("x", "bad")])
    assert log == ["+one", "-one", "+two", "-two", "+two"]
    assert fiber.state is FiberState.ACTIVE


async def test_K123_another_plugin_is_imported_first_and_the_old_one_comes_back(
    ctx: Context,
) -> None:
    tree = RowTree(ctx)
    with anyio.fail_after(5):
        await tree.boot([say("x", "x")])
        fiber = present(tree, "x")
        with pytest.raises(RowError) as missing:
            await tree.apply([row("x", "nothing_there")])
        assert (missing.value.stage, tree.fiber("x"), log) == ("import", fiber, ["+x"])
        with pytest.raises(RowError):
            await tree.apply([row("x", "failing")])
        assert log == ["+x", "-x", "+x"]
        await tree.apply([row("x", "other")])
    assert log[3:] == ["-x", "+other"]


async def test_K123_a_row_that_becomes_a_group_is_mounted_anew(ctx: Context) -> None:
    tree = RowTree(ctx)
    with anyio.fail_after(5):
        await tree.boot([say("x", "x")])
        await tree.apply([group("x", say("y", "y"))])
    assert log == ["+x", "-x", "+y"]


async def test_K124_applications_are_serialised_and_a_failed_one_blocks_nobody(
    ctx: Context,
) -> None:
    tree = RowTree(ctx)
    failures: list[Exception] = []

    async def apply(rows: list[Row]) -> None:
        try:
            await tree.apply(rows)
        except RowError as error:
            failures.append(error)

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            for rows in ([say("x", "a")], [row("x", "failing")], [say("x", "c")]):
                tasks.start_soon(apply, rows)
    assert len(failures) == 1
    assert log[-1] in ("+a", "+c")
    present(tree, "x")


async def test_K124_results_of_a_tree_that_is_disposed_meanwhile_are_dropped(
    ctx: Context,
) -> None:
    trees: list[RowTree] = []
    fiber = ctx.plugin(lambda ctx: trees.append(RowTree(ctx)))
    await fiber

    async def dispose() -> None:
        await fiber.dispose()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(trees[0].apply, [say("x", "x"), row("y", "failing")])
            tasks.start_soon(dispose)
    assert fiber.state is FiberState.DISPOSED


async def test_K122_rows_of_one_id_are_refused_before_anything_changes(ctx: Context) -> None:
    tree = RowTree(ctx)
    with anyio.fail_after(5):
        await tree.boot([say("x", "x")])
        with pytest.raises(RowsError, match="'y'"):
            await tree.apply([say("y", "a"), group("g", say("y", "b"))])
    assert log == ["+x"]


async def test_an_include_brings_the_rows_of_a_file_as_a_tree_of_their_own(
    ctx: Context, tmp_path: object
) -> None:
    folder = anyio.Path(str(tmp_path))
    text = f"[[plugin]]\nid='x'\nuse='{MODULE}:speaker'\nconfig={{word='included'}}\n"
    await (folder / "inner.toml").write_text(text, encoding="utf-8")
    outer = "[[plugin]]\nid='more'\ninclude='inner.toml'\n[[plugin]]\nid='x'\n" + text.partition(
        "id='x'\n"
    )[2].replace("included", "own")
    await (folder / "outer.toml").write_text(outer, encoding="utf-8")
    tree = RowTree(ctx)
    with anyio.fail_after(5):
        await tree.boot(load_rows(str(folder / "outer.toml")))
    assert sorted(log) == ["+included", "+own"]
    assert present(tree, "more/x").state is FiberState.ACTIVE


async def test_an_include_of_itself_is_refused(ctx: Context, tmp_path: object) -> None:
    path = anyio.Path(str(tmp_path)) / "loop.toml"
    await path.write_text("[[plugin]]\nid='again'\ninclude='loop.toml'\n", encoding="utf-8")
    with anyio.fail_after(5), pytest.raises(RowsError, match="includes itself"):
        await RowTree(ctx).boot(load_rows(str(path)))
