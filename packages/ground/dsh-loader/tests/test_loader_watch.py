from collections.abc import Collection
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path

import anyio
import pytest

from dsh_cordis import Context
from dsh_loader import ConfigUpdateFailed, Row, RowsError, RowTree, load_rows
from dsh_loader.watch import ConfigWatch, file_changes, in_bursts

pytest_plugins = ["dsh_cordis.testing"]

needs_watchfiles = pytest.mark.skipif(
    find_spec("watchfiles") is None, reason="watchfiles, the extra `watch`, is not installed"
)


class Source:
    """Changes that a test makes itself."""

    def __init__(self) -> None:
        self.send, self.receive = anyio.create_memory_object_stream[Collection[Path]](10)

    def change(self) -> None:
        self.send.send_nowait({Path("dsh.toml")})

    def close(self) -> None:
        self.send.close()
        self.receive.close()


class Reader:
    """Gives the rows of the moment, and tells how often they were read."""

    def __init__(self) -> None:
        self.rows: list[Row] | Exception = []
        self.reads = 0

    def __call__(self) -> list[Row]:
        self.reads += 1
        if isinstance(self.rows, Exception):
            raise self.rows
        return self.rows


class Slow:
    """An action that runs until it is let go, and keeps what it was called for."""

    def __init__(self) -> None:
        self.batches: list[set[Path]] = []
        self.begun = anyio.Event()
        self.go = anyio.Event()
        self.ended = 0

    async def __call__(self, batch: Collection[Path]) -> None:
        self.batches.append(set(batch))
        self.begun.set()
        await self.go.wait()
        self.ended += 1


async def test_K135_bursts_are_merged_and_one_refresh_runs_while_one_waits() -> None:
    source, slow = Source(), Slow()
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(in_bursts, aiter(source.receive), slow)
            source.send.send_nowait({Path("a")})
            await slow.begun.wait()
            for name in ("b", "c", "b"):
                source.send.send_nowait({Path(name)})
            await anyio.wait_all_tasks_blocked()
            assert slow.batches == [{Path("a")}]
            slow.go.set()
            source.send.close()
    source.close()
    assert slow.batches == [{Path("a")}, {Path("b"), Path("c")}]


async def test_K135_ending_the_watch_waits_for_a_running_refresh() -> None:
    source, slow = Source(), Slow()
    ended = anyio.Event()

    async def watch(scope: anyio.CancelScope) -> None:
        with scope:
            await in_bursts(aiter(source.receive), slow)
        ended.set()

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            scope = anyio.CancelScope()
            tasks.start_soon(watch, scope)
            source.change()
            await slow.begun.wait()
            scope.cancel()
            await anyio.wait_all_tasks_blocked()
            assert not ended.is_set()
            slow.go.set()
    source.close()
    assert (slow.ended, ended.is_set()) == (1, True)


async def test_K135_a_failing_refresh_keeps_the_last_good_tree_and_is_told(ctx: Context) -> None:
    source, reader = Source(), Reader()
    told: list[Exception] = []
    heard = anyio.Event()

    def hear(event: ConfigUpdateFailed) -> None:
        told.append(event.error)
        heard.set()
        raise RuntimeError("an observer")

    ctx.on(ConfigUpdateFailed, hear)
    tree = RowTree(ctx)
    good = [Row(id="x", group=True)]
    await tree.boot(good)
    handle = ConfigWatch(ctx, tree, reader, [], changes=aiter(source.receive)).start()
    with anyio.fail_after(5):
        reader.rows = RowsError("cannot be taken")
        source.change()
        await heard.wait()
        assert (told, tree.rows) == ([reader.rows], good)
        reader.rows = [Row(id="y", group=True)]
        source.change()
        await anyio.wait_all_tasks_blocked()
        await handle()
    source.close()
    assert tree.rows == reader.rows
    assert ConfigUpdateFailed.name == "hmr/config-update-failed"


async def test_K135_a_watch_ends_while_its_context_goes_down(ctx: Context) -> None:
    source, reader = Source(), Reader()
    reader.rows = [Row(id="x", group=True)]

    def body(ctx: Context) -> None:
        ConfigWatch(ctx, RowTree(ctx), reader, [], changes=aiter(source.receive)).start()

    with anyio.fail_after(5):
        fiber = ctx.plugin(body)
        await fiber
        source.change()
        await anyio.wait_all_tasks_blocked()
        source.change()
        await fiber.dispose()
    source.close()
    assert reader.reads in (1, 2)


@needs_watchfiles
async def test_K135_creation_change_and_removal_count_also_in_folders_to_come(
    tmp_path: Path,
) -> None:
    path = tmp_path / "later" / "deep" / "dsh.toml"
    seen: list[bool] = []
    steps = [anyio.Event() for _ in range(3)]

    async def watch() -> None:
        async with aclosing(file_changes([path])) as changes:
            async for batch in changes:
                assert batch == {path}
                seen.append(path.exists())
                steps[len(seen) - 1].set()
                if len(seen) == len(steps):
                    return

    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await anyio.wait_all_tasks_blocked()
            path.parent.mkdir(parents=True)
            path.write_text("[[plugin]]\n", encoding="utf-8")
            await steps[0].wait()
            path.write_text("[[plugin]]\nid='x'\ngroup=true\n", encoding="utf-8")
            await steps[1].wait()
            assert load_rows(path) == [Row(id="x", group=True)]
            path.unlink()
            await steps[2].wait()
    assert seen == [True, True, False]
