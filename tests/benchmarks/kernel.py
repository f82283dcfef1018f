"""What the kernel costs: `python tests/benchmarks/kernel.py [--once] [--backend trio] [GROUP ...]`.

Every case has a yardstick of its own, written by hand below and doing the same work without a
kernel; both are measured in one run, in turns, and the best round of each counts. The column
`limit` is the ratio that we mean to keep. `--once` measures nothing: it calls each case once.
"""

import argparse
import gc
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from functools import partial
from importlib.util import find_spec
from typing import ClassVar, NamedTuple

import anyio
import anyio.lowlevel

from dsh_cordis import (
    Context,
    Emit,
    Fiber,
    Serial,
    Target,
    Waterfall,
    create_scope,
)

ROUNDS = 15
REPEATS = 2000
BATCH = 200


class Tick(Emit, frozen=True):
    """Something small happened."""

    name: ClassVar[str] = "bench/tick"
    count: int


class Missed(Emit, frozen=True):
    """Nobody listens to it."""

    name: ClassVar[str] = "bench/missed"
    count: int


class Scoped(Emit, frozen=True):
    """Something happened to one subject."""

    name: ClassVar[str] = "bench/scoped"
    subject: ClassVar[str | None] = "owner"
    owner: object


class Ask(Serial[int], frozen=True):
    """A question that nobody answers."""

    name: ClassVar[str] = "bench/ask"
    count: int


class Around(Waterfall[int], frozen=True):
    """Something that listeners wrap."""

    name: ClassVar[str] = "bench/around"
    count: int


class Rival:
    """The hand-written yardstick: a dict of lists, a dict of services, lists of undo functions."""

    def __init__(self) -> None:
        self.listeners: dict[str, list[Callable[..., object]]] = {}
        self.services: dict[str, object] = {}

    def on(self, event: str, listener: Callable[..., object]) -> Callable[[], None]:
        """Register a listener."""
        present = self.listeners.setdefault(event, [])
        present.append(listener)
        return partial(present.remove, listener)

    def emit(self, name: str, event: object) -> None:
        """Call the listeners."""
        for listener in self.listeners.get(name, ()):
            listener(event)

    def provide(self, key: str, value: object) -> Callable[[], None]:
        """Register a service."""
        if key in self.services:
            raise KeyError(key)
        self.services[key] = value
        return partial(self.withdraw, key)

    def withdraw(self, key: str) -> None:
        """Remove a service."""
        del self.services[key]


class Mounted:
    """A plugin of the yardstick: its context, and what undoes it."""

    def __init__(self, rival: Rival, config: str) -> None:
        self.rival = rival
        self.config = config
        self.undo: list[Callable[[], None]] = []

    def load(self, body: "Callable[[Mounted, str], None]") -> None:
        """Run the body; take it back if it raises."""
        try:
            body(self, self.config)
        except Exception:
            self.unload()
            raise

    def on(self, event: str, listener: Callable[..., object]) -> None:
        """Register a listener of this plugin."""
        self.undo.append(self.rival.on(event, listener))

    def provide(self, key: str, value: object) -> None:
        """Register a service of this plugin."""
        self.undo.append(self.rival.provide(key, value))

    def unload(self) -> None:
        """Undo everything, newest first, whatever raises."""
        errors: list[Exception] = []
        while self.undo:
            try:
                self.undo.pop()()
            except Exception as error:  # noqa: BLE001  # the others are undone all the same
                errors.append(error)
        if errors:
            raise ExceptionGroup("unload", errors)


class Case(NamedTuple):
    """One comparison; both sides do their work a number of times and return the seconds."""

    name: str
    limit: float | None
    yardstick: Callable[[int], Awaitable[float]]
    ours: Callable[[int], Awaitable[float]]
    repeats: int = REPEATS


def timed(work: Callable[[], object]) -> Callable[[int], Coroutine[object, object, float]]:
    """Seconds of synchronous work."""

    async def run(repeats: int) -> float:
        started = time.perf_counter()
        for _ in range(repeats):
            work()
        return time.perf_counter() - started

    return run


def awaited(
    work: Callable[[], Awaitable[object]],
) -> Callable[[int], Coroutine[object, object, float]]:
    """Seconds of awaited work."""

    async def run(repeats: int) -> float:
        started = time.perf_counter()
        for _ in range(repeats):
            await work()
        return time.perf_counter() - started

    return run


def _hear(event: object) -> None:
    return None


def _hand_emit(rival: Rival) -> None:
    rival.emit("bench/tick", Tick(count=1))


def _hand_emit_missed(rival: Rival) -> None:
    rival.emit("bench/missed", Missed(count=1))


async def events(root: Context) -> AsyncIterator[Case]:
    """Emit with and without scopes."""
    rival = Rival()
    yield Case(
        "emit to nobody",
        None,
        timed(partial(_hand_emit_missed, rival)),
        timed(lambda: root.emit(Missed(count=1))),
    )
    owner = object()
    scope = create_scope(root, owner)
    for count, scoped_limit in ((1, 6.0), (10, 4.0)):
        rival = Rival()
        handles = []
        for _ in range(count):
            rival.on("bench/tick", _hear)
            handles.append(root.on(Tick, _hear))
            handles.append(scope.ctx.on(Scoped, _hear))
        plain = timed(partial(_hand_emit, rival))
        noun = "listener" if count == 1 else "listeners"
        yield Case(f"emit to {count} {noun}", 2.0, plain, timed(lambda: root.emit(Tick(count=1))))
        yield Case(
            f"scoped emit to {count} {noun}",
            scoped_limit,
            plain,
            timed(lambda: root.emit(Scoped(owner=owner))),
        )
        yield Case(
            f"the same with its target written out, {count} {noun}",
            None,
            plain,
            timed(lambda: root.emit(Scoped(owner=owner), target=Target(owner))),
        )
        for handle in handles:
            handle()
    await scope.dispose()


async def _silent(event: Ask) -> None:
    return None


async def _wrap(event: Around, following: Callable[[], Awaitable[int]]) -> int:
    return await following() + 1


async def _innermost() -> int:
    return 0


async def _hand_serial(
    listeners: Sequence[Callable[[Ask], Awaitable[object]]], event: Ask
) -> object:
    for listener in listeners:
        result = await listener(event)
        if result is not None:
            return result
    return None


def _hand_waterfall(event: Around) -> Awaitable[int]:
    following: Callable[[], Awaitable[int]] = _innermost
    for _ in range(10):
        following = partial(_wrap, event, following)
    return following()


async def decisions(root: Context) -> AsyncIterator[Case]:
    """Serial and waterfall, ten listeners each."""
    handles = [root.on(Ask, _silent) for _ in range(10)]
    handles += [root.on(Around, _wrap) for _ in range(10)]
    listeners = [_silent] * 10
    yield Case(
        "waterfall of ten",
        1.3,
        awaited(lambda: _hand_waterfall(Around(count=1))),
        awaited(lambda: root.waterfall(Around(count=1), _innermost)),
        REPEATS // 4,
    )
    yield Case(
        "serial of ten",
        2.0,
        awaited(lambda: _hand_serial(listeners, Ask(count=1))),
        awaited(lambda: root.serial(Ask(count=1))),
        REPEATS // 4,
    )
    for handle in handles:
        handle()


class WithFallback:
    """A class with attributes and `__getattr__`, which Python 3.11 reads more slowly."""

    def __init__(self) -> None:
        self.clock = object()

    def __getattr__(self, name: str) -> object:
        raise AttributeError(name)


class Plain:
    """A class with attributes."""

    def __init__(self) -> None:
        self.clock = object()


async def reads(root: Context) -> AsyncIterator[Case]:
    """A service read after the first."""
    found: list[Context] = []
    handle = root.provide("clock", object())
    async with root.plugin(lambda ctx: found.append(ctx)):
        ctx = found[0]
        old = sys.version_info < (3, 12)
        holder: WithFallback | Plain = WithFallback() if old else Plain()

        async def ours(repeats: int) -> float:
            started = time.perf_counter()
            for _ in range(repeats):
                ctx.clock  # noqa: B018  # the read is what is measured
            return time.perf_counter() - started

        async def yardstick(repeats: int) -> float:
            started = time.perf_counter()
            for _ in range(repeats):
                holder.clock  # noqa: B018  # as above
            return time.perf_counter() - started

        yield Case(
            "service read after the first", 1.2 if old else 1.3, yardstick, ours, REPEATS * 5
        )
    await handle()


def _body(ctx: Context, key: str) -> None:
    ctx.on(Tick, _hear)
    ctx.on(Missed, _hear)
    ctx.on(Scoped, _hear)
    ctx.provide(key, key)


def _rival_body(ctx: Mounted, key: str) -> None:
    ctx.on("bench/tick", _hear)
    ctx.on("bench/missed", _hear)
    ctx.on("bench/scoped", _hear)
    ctx.provide(key, key)


async def _async_body(ctx: Context, key: str) -> None:
    _body(ctx, key)
    await anyio.lowlevel.checkpoint()


KEYS = [f"key{number}" for number in range(10_000)]


class Loads:
    """Loads and unloads batches; the two are timed apart."""

    def __init__(self, root: Context) -> None:
        self.root = root

    async def hand(self, repeats: int, *, unload: bool) -> float:
        """The yardstick of synchronous plugins."""
        rival = Rival()
        started = time.perf_counter()
        mounted = []
        for key in KEYS[:repeats]:
            plugin = Mounted(rival, key)
            plugin.load(_rival_body)
            mounted.append(plugin)
        loaded = time.perf_counter()
        for plugin in reversed(mounted):
            plugin.unload()
        return time.perf_counter() - loaded if unload else loaded - started

    async def sync(self, repeats: int, *, unload: bool) -> float:
        """Synchronous plugins."""
        return await self._cycle(_body, repeats, unload=unload)

    async def late(self, repeats: int, *, unload: bool) -> float:
        """Asynchronous plugins."""
        return await self._cycle(_async_body, repeats, unload=unload)

    async def _cycle(self, body: Callable[..., object], repeats: int, *, unload: bool) -> float:
        root = self.root
        started = time.perf_counter()
        fibers: list[Fiber] = [root.plugin(body, key) for key in KEYS[:repeats]]
        await root.settled()
        loaded = time.perf_counter()
        for fiber in reversed(fibers):
            fiber.dispose()
        await root.settled()
        return time.perf_counter() - loaded if unload else loaded - started

    async def one_by_one(self, repeats: int) -> float:
        """Asynchronous plugins, each awaited before the next is mounted."""
        root = self.root
        spent = 0.0
        for key in KEYS[:repeats]:
            started = time.perf_counter()
            fiber = root.plugin(_async_body, key)
            await fiber
            spent += time.perf_counter() - started
            await fiber.dispose()
        return spent

    async def round_trip(self, repeats: int) -> float:
        """A task of anyio, started and waited for."""
        spent = 0.0
        async with anyio.create_task_group() as tasks:
            for _ in range(repeats):
                started = time.perf_counter()
                done = anyio.Event()
                tasks.start_soon(_finish, done)
                await done.wait()
                spent += time.perf_counter() - started
        return spent


async def _finish(done: anyio.Event) -> None:
    await anyio.lowlevel.checkpoint()
    done.set()


async def loads(root: Context) -> AsyncIterator[Case]:
    """Plugins with three listeners and one service."""
    runs = Loads(root)
    yield Case(
        "load a synchronous plugin",
        8.0,
        partial(runs.hand, unload=False),
        partial(runs.sync, unload=False),
        BATCH,
    )
    yield Case(
        "unload a synchronous plugin",
        11.0,
        partial(runs.hand, unload=True),
        partial(runs.sync, unload=True),
        BATCH,
    )
    yield Case(
        "load an asynchronous plugin (against a task round trip)",
        3.0,
        runs.round_trip,
        runs.one_by_one,
        BATCH // 10,  # a round must be short: on a busy machine a long one is always interrupted
    )


async def libraries(root: Context) -> AsyncIterator[Case]:
    """Other libraries for one of the things that a kernel does, where they are installed."""
    if find_spec("pluggy") is not None:
        async for case in _pluggy(root):
            yield case
    if find_spec("blinker") is not None:
        async for case in _blinker(root):
            yield case


async def _pluggy(root: Context) -> AsyncIterator[Case]:
    import pluggy

    spec, impl = pluggy.HookspecMarker("bench"), pluggy.HookimplMarker("bench")

    class Specs:
        @spec
        def tick(self, event: object) -> None:
            """Something small happened."""

    class Heard:
        @impl
        def tick(self, event: object) -> None:
            return None

    manager = pluggy.PluginManager("bench")
    manager.add_hookspecs(Specs)
    for _ in range(10):
        manager.register(Heard())
    handles = [root.on(Tick, _hear) for _ in range(10)]
    yield Case(
        "emit to 10 listeners (against pluggy)",
        None,
        timed(lambda: manager.hook.tick(event=Tick(count=1))),
        timed(lambda: root.emit(Tick(count=1))),
    )
    for handle in handles:
        handle()


async def _blinker(root: Context) -> AsyncIterator[Case]:
    from blinker import Signal  # type: ignore[import-not-found]  # compared with where installed

    signal = Signal()
    listeners = [partial(_hear) for _ in range(10)]
    for listener in listeners:
        signal.connect(listener)
    handles = [root.on(Tick, _hear) for _ in range(10)]
    yield Case(
        "emit to 10 listeners (against blinker)",
        None,
        timed(lambda: signal.send(Tick(count=1))),
        timed(lambda: root.emit(Tick(count=1))),
    )
    for handle in handles:
        handle()


async def growth(root: Context, loads_: int = 10_000) -> str:
    """The last tenth of many loads against the first, with all of them staying mounted."""
    took: list[float] = []
    fibers: list[Fiber] = []
    for key in KEYS[:loads_]:
        started = time.perf_counter()
        fiber = root.plugin(_body, key)
        await fiber
        took.append(time.perf_counter() - started)
        fibers.append(fiber)
    tenth = len(took) // 10
    ratio = statistics.median(took[-tenth:]) / statistics.median(took[:tenth])
    for fiber in reversed(fibers):
        fiber.dispose()
    await root.settled()
    return row(f"last tenth of {loads_} loads against the first", ratio, 1.3)


async def memory(root: Context, count: int = 1000) -> str:
    """KiB that a mounted plugin takes."""
    await root.plugin(_body, "warm").dispose()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    fibers = [root.plugin(_body, key) for key in KEYS[:count]]
    await root.settled()
    gc.collect()
    taken = (tracemalloc.get_traced_memory()[0] - before) / count / 1024
    tracemalloc.stop()
    for fiber in reversed(fibers):
        fiber.dispose()
    await root.settled()
    return row("KiB a plugin", taken, 4.0)


def imports(rounds: int = 9) -> str:
    """Importing the kernel against importing what it stands on."""
    best = {"anyio, msgspec": float("inf"), "dsh_cordis": float("inf")}
    # Without the cache of compiled modules it would be the compiler that is measured.
    env = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    for _ in range(rounds):
        for modules in best:
            code = (
                "import time; t = time.perf_counter(); "
                f"import {modules}; print(time.perf_counter() - t)"
            )
            done = subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
            )
            best[modules] = min(best[modules], float(done.stdout))
    return row(
        "import dsh_cordis (against anyio, msgspec)",
        best["dsh_cordis"] / best["anyio, msgspec"],
        1.3,
    )


async def measure(case: Case) -> tuple[float, float]:
    """Best seconds a call of the yardstick and of ours."""
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for side, run in enumerate((case.yardstick, case.ours)):
            gc.collect()
            gc.disable()
            try:
                best[side] = min(best[side], await run(case.repeats) / case.repeats)
            finally:
                gc.enable()
    return best[0], best[1]


def row(name: str, value: float, limit: float | None, extra: str = "") -> str:
    """A row of the table."""
    shown = "" if limit is None else f"{limit:g}"
    return f"| {name} | {value:.2f} | {shown} | {extra} |"


GROUPS = {
    "events": events,
    "decisions": decisions,
    "reads": reads,
    "loads": loads,
    "libraries": libraries,
}


async def run(groups: Sequence[str], *, once: bool) -> None:
    """Measure the groups on one open root."""
    write = sys.stdout.write
    async with Context() as root:
        for name in groups:
            if name not in GROUPS:
                continue
            async for case in GROUPS[name](root):
                if once:
                    await case.yardstick(1)
                    await case.ours(1)
                    continue
                theirs, ours = await measure(case)
                extra = f"{ours * 1e6:.2f} / {theirs * 1e6:.2f} us"
                write(row(case.name, ours / theirs, case.limit, extra) + "\n")
        if "growth" in groups:
            text = await growth(root, 100 if once else 10_000)
            write("" if once else text + "\n")
        if "memory" in groups:
            text = await memory(root, 10 if once else 1000)
            write("" if once else text + "\n")


def main() -> None:
    """The command."""
    known = [*GROUPS, "growth", "memory", "imports"]
    parser = argparse.ArgumentParser(description="What the kernel costs, as ratios.")
    parser.add_argument("groups", nargs="*", choices=[*known, []], metavar="GROUP")
    parser.add_argument("--once", action="store_true")
    parser.add_argument("--backend", default="asyncio")
    arguments = parser.parse_args()
    groups = arguments.groups or known
    if not arguments.once:
        sys.stdout.write("| case | ratio | limit | ours / yardstick |\n|---|---|---|---|\n")
    anyio.run(partial(run, groups, once=arguments.once), backend=arguments.backend)
    if "imports" in groups:
        text = imports(1 if arguments.once else 9)
        sys.stdout.write("" if arguments.once else text + "\n")
    if arguments.once:
        sys.stdout.write("kernel: every case works\n")


if __name__ == "__main__":
    main()
