import sys
from collections.abc import Iterator
from types import ModuleType

import anyio
import pytest

from dsh_cordis import Context, FiberState
from dsh_loader import BootError, Row, RowsError, mount_rows

pytest_plugins = ["dsh_cordis.testing"]


class BodyError(Exception):
    pass


log: list[str] = []


def provider(ctx: Context) -> object:
    ctx.provide("thing", 1)
    log.append("provider")
    return lambda: log.append("provider undone")


def consumer(ctx: Context, config: dict[str, object]) -> None:
    log.append(f"consumer {config['word']}")


consumer.inject = ["thing"]  # type: ignore[attr-defined]  # how a function declares its needs


def failing(ctx: Context) -> None:
    raise BodyError("in the body")


def leaving(ctx: Context) -> None:
    ctx.fiber.dispose()


@pytest.fixture(autouse=True)
def sample() -> Iterator[None]:
    """Make the plugins above importable under a name that rows can write."""
    module = ModuleType("loader_boot_sample")
    for body in (provider, consumer, failing, leaving):
        setattr(module, body.__name__, body)
    sys.modules[module.__name__] = module
    log.clear()
    yield
    del sys.modules[module.__name__]


def row(name: str, **fields: object) -> Row:
    return Row.model_validate({"id": name, "use": f"loader_boot_sample:{name}", **fields})


async def test_K110_K125_boot_returns_when_every_enabled_row_is_active(ctx: Context) -> None:
    rows = [
        row("consumer", config={"word": "hello"}),
        row("failing", disabled=True),
        row("provider"),
    ]
    with anyio.fail_after(5):
        fibers = await mount_rows(ctx, rows)
    assert [fiber.state for fiber in fibers] == [FiberState.ACTIVE] * 2
    assert log == ["provider", "consumer hello"]


async def test_K125_a_failing_boot_disposes_all_and_reports_every_row(ctx: Context) -> None:
    before = len(ctx.fiber.effects())
    rows = [row("provider"), row("failing"), Row(id="late", use="loader_boot_sample:consumer")]
    missing = row("consumer", id="waits")
    missing_plugin = Row(id="waits", use=missing.use, config={"word": "x"})
    with anyio.fail_after(5), pytest.raises(BootError) as caught:
        await mount_rows(ctx, [row("failing"), missing_plugin])
    assert [(name, type(error)) for name, error in caught.value.failed] == [("failing", BodyError)]
    assert caught.value.failed[0][1].__traceback__ is not None
    assert caught.value.waiting == [("waits", ["thing"])]
    assert "'waits' waits for thing" in caught.value.message
    with anyio.fail_after(5), pytest.raises(BootError) as again:
        await mount_rows(ctx, rows)
    assert [name for name, _ in again.value.failed] == ["failing", "late"]
    assert log == ["provider", "provider undone"]
    assert len(ctx.fiber.effects()) == before


async def test_K125_rows_that_cannot_be_imported_are_all_named_and_nothing_is_mounted(
    ctx: Context,
) -> None:
    rows = [row("provider"), Row(id="a", use="no_such_module:x"), Row(id="b", use="no-such-name")]
    with pytest.raises(BootError) as caught:
        await mount_rows(ctx, rows)
    assert [name for name, _ in caught.value.failed] == ["a", "b"]
    assert log == []


async def test_K111_duplicate_ids_are_refused_before_anything_changes(ctx: Context) -> None:
    with pytest.raises(RowsError, match="'provider'"):
        await mount_rows(ctx, [row("provider"), row("provider")])
    assert log == []


async def test_K125_a_row_that_disposes_itself_is_a_normal_return(ctx: Context) -> None:
    with anyio.fail_after(5):
        fibers = await mount_rows(ctx, [row("leaving")])
    assert fibers[0].state is FiberState.DISPOSED


async def test_a_plugin_body_may_mount_rows(ctx: Context) -> None:
    async def body(ctx: Context) -> None:
        await mount_rows(ctx, [row("provider")])

    with anyio.fail_after(5):
        await ctx.plugin(body)
    assert log == ["provider"]
