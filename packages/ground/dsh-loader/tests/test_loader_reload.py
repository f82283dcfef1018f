import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest

from dsh_cordis import Context, Emit, FiberState
from dsh_loader import (
    ModulesChanged,
    ModulesReloaded,
    ReloadError,
    ReloadFailed,
    RestartRequired,
    Row,
    RowError,
    RowTree,
)
from dsh_loader.reload import FIXED, HotReload

pytest_plugins = ["dsh_cordis.testing"]

PLUGIN = """
from typing import ClassVar
from dsh_cordis import Emit
from reload_sample import {helper}
from reload_sample.log import log

class Spoke(Emit, frozen=True):
    name: ClassVar[str] = "reload/spoke"

def apply(ctx, config):
    ctx.on(Spoke, lambda event: log.append("heard"))
    log.append(f"+{word} {{{helper}.VALUE}} {{config}}")
    return lambda: log.append("-{word}")
"""


class Site:
    """A package of plugins in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.package = folder / "reload_sample"
        self.package.mkdir()
        self.write("__init__", "")
        self.write("log", "log = []")
        self.write("one", "VALUE = 1")
        self.write("two", "VALUE = 2")
        self.write("first", PLUGIN.format(helper="one", word="first"))
        self.write("second", PLUGIN.format(helper="two", word="second"))

    def write(self, name: str, text: str) -> Path:
        path = self.package / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        return path

    @property
    def log(self) -> list[str]:
        log: list[str] = sys.modules["reload_sample.log"].log
        return log


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.syspath_prepend(tmp_path)
    yield Site(tmp_path)
    for name in [name for name in sys.modules if name.startswith("reload_sample")]:
        del sys.modules[name]


ROWS = [
    Row(id="a", use="reload_sample.first:apply", config={"n": 1}),
    Row(id="g", plugin=(Row(id="b", use="reload_sample.second:apply", config={"n": 2}),)),
]


class Told:
    """Everything that a reloader tells."""

    def __init__(self, ctx: Context) -> None:
        self.events: list[Emit] = []
        ctx.on(ModulesReloaded, self.events.append)
        ctx.on(ReloadFailed, self.events.append)
        ctx.on(RestartRequired, self.events.append)


async def mounted(ctx: Context, site: Site) -> tuple[RowTree, HotReload, Told]:
    tree, told = RowTree(ctx), Told(ctx)
    await tree.boot(ROWS)
    del site.log[:]
    return tree, HotReload(ctx, tree, [site.root]), told


async def test_K130_K132_exactly_the_rows_whose_imports_reach_a_change_are_replaced(
    ctx: Context, site: Site
) -> None:
    with anyio.fail_after(5):
        tree, reloader, told = await mounted(ctx, site)
        old = (tree.fiber("a"), tree.fiber("b"))
        await reloader.reload({site.write("two", "VALUE = 20")})
    assert site.log == ["-second", "+second 20 {'n': 2}"]
    assert tree.fiber("a") is old[0]
    assert old[1] is not None
    assert old[1].state is FiberState.DISPOSED
    assert told.events == [
        ModulesReloaded(modules=("reload_sample.second", "reload_sample.two"), rows=("b",))
    ]
    assert tree.rows == ROWS


async def test_K130_what_nothing_imports_is_only_announced(ctx: Context, site: Site) -> None:
    changed: list[tuple[str, ...]] = []
    ctx.on(ModulesChanged, lambda event: changed.append(event.paths))
    with anyio.fail_after(5):
        _, reloader, told = await mounted(ctx, site)
        path = site.write("unused", "raise RuntimeError")
        await reloader.reload({path})
    assert (site.log, told.events, changed) == ([], [], [(str(path),)])


async def test_K130_a_change_in_the_kernel_asks_for_a_restart(ctx: Context, site: Site) -> None:
    assert "dsh_cordis" in FIXED
    with anyio.fail_after(5):
        tree, _, told = await mounted(ctx, site)
        kernel = Path(sys.modules["dsh_cordis.errors"].__file__ or "")
        await HotReload(ctx, tree, [kernel.parent]).reload({kernel})
    assert told.events == [RestartRequired(modules=("dsh_cordis.errors",))]
    assert site.log == []


async def test_K131_new_code_that_cannot_be_imported_touches_nothing(
    ctx: Context, site: Site
) -> None:
    with anyio.fail_after(5):
        tree, reloader, told = await mounted(ctx, site)
        before = dict(sys.modules)
        package = sys.modules["reload_sample"]
        await reloader.reload({site.write("one", "VALUE = = 1")})
        assert site.log == []
        assert {name: sys.modules[name] for name in before if name.startswith("reload")} == {
            name: before[name] for name in before if name.startswith("reload")
        }
        assert getattr(package, "one", None) is before["reload_sample.one"]
        [event] = told.events
        assert isinstance(event, ReloadFailed)
        assert isinstance(event.error, ReloadError)
        assert isinstance(event.error.__cause__, SyntaxError)
        await reloader.reload({site.write("one", "VALUE = 3")})
    assert site.log == ["-first", "+first 3 {'n': 1}"]
    assert tree.fiber("a") is not None


async def test_K133_where_the_new_body_fails_the_old_plugin_runs_again(
    ctx: Context, site: Site
) -> None:
    with anyio.fail_after(5):
        tree, reloader, told = await mounted(ctx, site)
        await reloader.reload({site.write("one", "VALU = 1")})
    assert site.log == ["-first", "+first 1 {'n': 1}"]
    error = told.events[-1]
    assert isinstance(error, ReloadFailed)
    assert isinstance(error.error, RowError)
    assert isinstance(error.error.__cause__, AttributeError)
    fiber = tree.fiber("a")
    assert fiber is not None
    assert fiber.state is FiberState.ACTIVE


async def test_K134_edits_of_one_length_within_a_second_are_seen(ctx: Context, site: Site) -> None:
    with anyio.fail_after(5):
        _, reloader, _ = await mounted(ctx, site)
        for value in (3, 4, 5):
            path = site.write("one", f"VALUE = {value}")
            os.utime(path, (1_000_000_000, 1_000_000_000))
            await reloader.reload({path})
    added = [text for text in site.log if text.startswith("+")]
    assert added == [f"+first {value} {{'n': 1}}" for value in (3, 4, 5)]


async def test_K136_reloading_never_changes_the_saved_rows(ctx: Context, site: Site) -> None:
    saved: list[list[Row]] = []
    with anyio.fail_after(5):
        tree = RowTree(ctx, on_save=saved.append)
        await tree.boot(ROWS)
        reloader = HotReload(ctx, tree, [site.root])
        await reloader.reload({site.write("one", "VALUE = 3")})
        await reloader.reload({site.write("one", "VALU = 3")})
    assert (saved, tree.rows) == ([], ROWS)


@pytest.mark.skipif(find_spec("watchfiles") is None, reason="watchfiles is not installed")
async def test_K130_a_saved_file_is_reloaded(ctx: Context, site: Site) -> None:
    done = anyio.Event()
    ctx.on(ModulesReloaded, lambda event: done.set())
    with anyio.fail_after(20):
        _, reloader, _ = await mounted(ctx, site)
        handle = reloader.start()
        while not done.is_set():
            # The first write may come before the folder is watched.
            site.write("one", "VALUE = 9")
            with anyio.move_on_after(0.5):
                await done.wait()
        await handle()
    assert site.log[:2] == ["-first", "+first 9 {'n': 1}"]
