"""What every fault does to every store: `python tests/fault_matrix.py [--markdown] [FAULT ...]`.

A child process runs a recorded conversation over a store (`fault_child.py`) and is killed, or its
disk fills up, or its files are damaged afterwards. Then, each time: nothing that was stored is
missing, the log opens, the next request is valid, and the session is resumed and goes on.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import IO, Final, Literal

import anyio
import msgspec
from typing_extensions import override

import dsh_llm_scripted
import dsh_session_jsonl
import dsh_session_sqlite
from dsh_agent import Agent
from dsh_cordis import Context, Plugin
from dsh_llm import message_text, request_messages
from dsh_llm.testing import check_request
from dsh_llm_scripted import ScriptedAdapter, text_chunks
from dsh_session import (
    Session,
    SessionConfig,
    SessionEvent,
    SessionId,
    ToolCallEvent,
    UserMessageEvent,
    encode_event,
)
from dsh_session_jsonl import JsonlStore
from dsh_session_persistence import (
    Access,
    SessionAlreadyOwnedError,
    SessionLogStore,
    SessionPersistenceError,
    SessionPersistenceNotFoundError,
)
from dsh_session_projection import ProjectionFailed
from dsh_session_sqlite import SqliteStore
from dsh_spine import spine

FAULTY: Final = SessionId("faulty")
Kind = Literal["none", "zstd", "sqlite"]
STORES: Final[Sequence[Kind]] = ("none", "zstd", "sqlite")
_BACKENDS: Final = ("asyncio", "trio")
_CHILD: Final = Path(__file__).resolve().with_name("fault_child.py")
_WAIT_S: Final = 10
NOBODY: Final = 65_534
_FRAME_MAGIC: Final = b"\x28\xb5\x2f\xfd"


class Report(msgspec.Struct):
    """What a child told before it ended."""

    appended: list[str] = msgspec.field(default_factory=list)
    """Its log, event by event."""
    stored: int = 0
    """How many events its store had acknowledged."""
    requests: list[int] = msgspec.field(default_factory=list)
    """How long the log was when each request went out."""
    entered: list[str] = msgspec.field(default_factory=list)
    """Calls whose bodies ran."""
    writes: int = 0
    done: bool = False
    failed: str = ""
    status: int | None = None


class Bench(AbstractContextManager["Bench"]):
    """Runs cases in a child process, each in a folder of its own."""

    def __init__(self) -> None:
        # What dies is a process, not a machine: files in memory do, and syncing them costs nothing.
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self._folders = tempfile.TemporaryDirectory(prefix="faults-", dir=memory)
        Path(self._folders.name).chmod(0o711)
        self._count = 0
        self._whole: dict[Kind, Report] = {}
        self._child = subprocess.Popen(
            [sys.executable, str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    @override
    def __exit__(self, *_: object) -> None:
        _pipe(self._child.stdin).close()
        _pipe(self._child.stdout).close()
        self._child.wait(_WAIT_S)
        self._folders.cleanup()

    def folder(self) -> Path:
        """A new, empty folder."""
        self._count += 1
        folder = Path(self._folders.name) / f"{self._count:04}"
        folder.mkdir()
        return folder

    def copy(self, folder: Path) -> Path:
        """A new folder with the same files."""
        return Path(shutil.copytree(folder, self.folder(), dirs_exist_ok=True))

    def whole(self, kind: Kind) -> Report:
        """The conversation without a fault."""
        if kind not in self._whole:
            folder = self.folder()
            report = self._whole[kind] = self.run(kind, folder)
            assert report.done, report.failed
            survives(self, kind, folder, report)
        return self._whole[kind]

    @property
    def backend(self) -> str:
        """The event loop of this case: they take turns."""
        return _BACKENDS[self._count % 2]

    def run(
        self,
        kind: Kind,
        folder: Path,
        case: Mapping[str, object] = MappingProxyType({}),
        *,
        holding: Callable[[int], None] | None = None,
    ) -> Report:
        """Run a case to the end of its process; `holding` gets the process that waits for it."""
        asked = {"store": kind, "folder": str(folder), "backend": self.backend, **case}
        _pipe(self._child.stdin).write(msgspec.json.encode(asked) + b"\n")
        _pipe(self._child.stdin).flush()
        report = Report()
        for line in _pipe(self._child.stdout):
            fact: dict[str, object] = msgspec.json.decode(line)
            process = fact.get("holding")
            if isinstance(process, int) and holding is not None:
                holding(process)
            _note(report, fact)
            if report.status is not None:
                return report
        raise AssertionError("the child process ended")


class Point(msgspec.Struct, frozen=True):
    """One place where a fault strikes."""

    label: str
    check: Callable[[], object]


class Outcome(msgspec.Struct):
    """What became of all points of one fault in one store."""

    points: int = 0
    failures: list[str] = msgspec.field(default_factory=list)
    seconds: float = 0.0

    @property
    def text(self) -> str:
        """A cell of the table."""
        return f"{self.survived}/{self.points} in {self.seconds:.1f} s"

    @property
    def survived(self) -> int:
        """How many points did no harm."""
        return self.points - len(self.failures)


def run_fault(bench: Bench, name: str, kind: Kind) -> Outcome:
    """Strike everywhere, and collect what went wrong."""
    outcome = Outcome()
    start = time.perf_counter()
    for point in FAULTS[name](bench, kind):
        outcome.points += 1
        try:
            point.check()
        except Exception as error:  # noqa: BLE001  # a row of a table: every point is judged
            outcome.failures.append(f"{point.label}: {type(error).__name__}: {error}")
    outcome.seconds = time.perf_counter() - start
    return outcome


def store_of(kind: Kind, folder: Path) -> SessionLogStore:
    """The store of a folder, without a loop."""
    if kind == "sqlite":
        return SqliteStore(folder / "sessions.db")
    return JsonlStore(folder / "sessions", kind)


def plugin_of(kind: Kind, folder: Path) -> tuple[Plugin, object]:
    """The store of a folder, as it is mounted."""
    if kind == "sqlite":
        return dsh_session_sqlite, {"path": str(folder / "sessions.db")}
    return dsh_session_jsonl, {"root": str(folder / "sessions"), "compression": kind}


def stored_in(kind: Kind, folder: Path) -> Sequence[SessionEvent] | None:
    """The log that is left, `None` if there is none; it gives a valid request."""
    try:
        log = store_of(kind, folder).open(FAULTY, "read")
    except SessionPersistenceNotFoundError:
        return None
    events = list(log.read())
    session = Session.from_restore(FAULTY, events, log.header, log.inherited_event_count)
    log.close()
    check_request(request_messages(session.derive_messages()))
    return events


def survives(bench: Bench, kind: Kind, folder: Path, report: Report) -> None:
    """Assert all that must hold after a process died: what it stored is there, and is used."""
    events = left_over(kind, folder, report, report.stored)
    assert len(events or ()) >= max(report.requests, default=0), "a request left and is not stored"
    calls = {event.data.call_id for event in events or () if isinstance(event.data, ToolCallEvent)}
    assert calls.issuperset(report.entered), "a tool body was entered and its call is not stored"
    anyio.run(_goes_on, kind, folder, events, backend=bench.backend)


def left_over(
    kind: Kind, folder: Path, report: Report, least: int
) -> Sequence[SessionEvent] | None:
    """The log that is left: a beginning of what was appended, of `least` events or more."""
    events = stored_in(kind, folder)
    kept = [encode_event(event).decode() for event in events or ()]
    assert kept == report.appended[: len(kept)], "the stored log is not the one that was appended"
    assert len(kept) >= least, f"{len(kept)} events are left of {least} that were stored"
    return events


async def _goes_on_or_says_why(
    kind: Kind, folder: Path, events: Sequence[SessionEvent] | None
) -> None:
    """As `_goes_on`, for flipped bytes: an inbox that cannot be told is refused, and nothing hangs."""
    with contextlib.suppress(ProjectionFailed):
        await _goes_on(kind, folder, events)


async def _goes_on(kind: Kind, folder: Path, events: Sequence[SessionEvent] | None) -> None:
    """Resume what is left, or begin anew, and run a turn."""
    adapter = ScriptedAdapter([text_chunks("On we go.")] * 9)
    with anyio.fail_after(_WAIT_S):
        async with Context() as ctx:
            # As early as a clock that was set back: time never orders a log.
            _ = ctx.plugin(spine, {"sessions": SessionConfig(now_ms=lambda: 1_000)})
            _ = ctx.plugin(*plugin_of(kind, folder))
            _ = ctx.plugin(dsh_llm_scripted, adapter)
            await ctx.settled()
            if events is None:
                handle = await ctx.agents.create(session_id=FAULTY, provider="scripted", model="m")
            else:
                handle = await ctx.agents.resume(FAULTY, provider="scripted", model="m")
            check_request(request_messages(handle.agent.session.derive_messages()))
            await _run_a_turn(handle.agent)
            await ctx.sessions.flush(handle.agent.session)
            final = list(handle.agent.session.events)
    assert adapter.requests, "no request was sent after the fault"
    for request in adapter.requests:
        check_request(request.messages)
    before = list(events or ())
    assert final[: len(before)] == before, "resuming changed what was stored"
    assert stored_in(kind, folder) == final, "what was added after the fault is not stored"


async def _run_a_turn(agent: Agent) -> None:
    """Say something; what waited in the inbox is answered as well."""
    waiting = {message.id for message in (*agent.inbox.next_turn, *agent.inbox.next_step)}
    agent.followup("Are you there?")
    await agent.when_idle()
    events = [event.data for event in agent.session.events]
    asked = {data.message.id for data in events if isinstance(data, UserMessageEvent)}
    assert asked >= waiting, "input that waited was lost"
    assert message_text(agent.session.derive_messages()[-1]) == "On we go."


def _killed(bench: Bench, kind: Kind, where: str, step: int = 1, **more: int) -> Iterator[Point]:
    """Conversations that are killed at each event or each write; `where` is a field of the case."""
    whole = bench.whole(kind)
    places = range(1, whole.writes + 1) if where.endswith("write") else range(0, whole.stored, step)
    for place in places:
        case = {where: place, **more}
        yield Point(f"{where} {place}", partial(_kill, bench, kind, case))


def _killed_amid_the_bytes(bench: Bench, kind: Kind) -> Iterator[Point]:
    for size in _sizes(bench, kind):
        case = {"size_limit": size, "at_limit": "die"}
        yield Point(f"byte {size}", partial(_kill, bench, kind, case))


def _kill(bench: Bench, kind: Kind, case: Mapping[str, object]) -> None:
    folder = bench.folder()
    report = bench.run(kind, folder, case)
    assert not report.failed, report.failed
    assert report.status, "the process was not killed"
    survives(bench, kind, folder, report)
    shutil.rmtree(folder)


def _disk_full(bench: Bench, kind: Kind) -> Iterator[Point]:
    def check(size: int) -> None:
        folder = bench.folder()
        report = bench.run(kind, folder, {"size_limit": size})
        if report.done:
            # There was room again at the end: what had to wait was stored then.
            assert report.stored == len(report.appended), "something was never stored"
        else:
            assert "SessionStorageError" in report.failed, report.failed
            assert not report.stored, "only the creation of a session may fail"
        survives(bench, kind, folder, report)

    for size in _sizes(bench, kind):
        yield Point(f"{size} bytes", partial(check, size))


def _sizes(bench: Bench, kind: Kind, count: int = 14) -> Sequence[int]:
    """Sizes that the largest file has on its way."""
    folder = bench.folder()
    bench.run(kind, folder, {"at_appended": bench.whole(kind).stored - 1})
    largest = max(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return [1, 100, *(largest * part // count for part in range(1, count))]


def _two_processes(bench: Bench, kind: Kind) -> Iterator[Point]:
    def check() -> None:
        folder = bench.folder()

        def holding(process: int) -> None:
            try:
                anyio.run(_intrude, kind, folder, backend=bench.backend)
                assert stored_in(kind, folder), "a reader waits for the writer"
            finally:
                os.kill(process, signal.SIGKILL)

        report = bench.run(kind, folder, {"hold": True}, holding=holding)
        assert report.entered == ["look-left"]
        survives(bench, kind, folder, report)

    for backend in _BACKENDS:
        yield Point(f"held under {backend}", check)


async def _intrude(kind: Kind, folder: Path) -> None:
    """Try to write the session that another process holds."""
    with anyio.fail_after(_WAIT_S):
        async with Context() as ctx:
            _ = ctx.plugin(spine)
            _ = ctx.plugin(*plugin_of(kind, folder))
            await ctx.settled()
            try:
                await ctx.agents.resume(FAULTY, provider="scripted", model="m")
            except SessionAlreadyOwnedError:
                return
    raise AssertionError("two processes have the session open for writing")


def _torn_tail(bench: Bench, kind: Kind) -> Iterator[Point]:
    """The last row (SQLite: its log of pages) ends at any byte, as after a power cut."""
    for seq in (36,) if kind == "sqlite" else (11, 12, 36):
        folder = bench.folder()
        report = bench.run(kind, folder, {"behind_event": seq})
        data = _log_file(kind, folder).read_bytes()
        start, step = (0, len(data) // 60) if kind == "sqlite" else (_start_of_tail(kind, data), 1)
        for number, cut in enumerate(range(start, len(data), step)):
            tear = partial(_tear, bench, kind, folder, report, cut, number % 25 == 1)
            yield Point(f"event {seq}, byte {cut}", tear)


def _tear(bench: Bench, kind: Kind, folder: Path, report: Report, cut: int, resumed: bool) -> None:
    torn = bench.copy(folder)
    os.truncate(_log_file(kind, torn), cut)
    # The power was cut: shared memory does not survive that.
    (torn / "sessions.db-shm").unlink(missing_ok=True)
    events = left_over(kind, torn, report, 0 if kind == "sqlite" else report.stored - 1)
    if resumed:
        anyio.run(_goes_on, kind, torn, events, backend=bench.backend)
    shutil.rmtree(torn)


def _log_file(kind: Kind, folder: Path) -> Path:
    """What grows when a session is written."""
    if kind == "sqlite":
        log = folder / "sessions.db-wal"
        return log if log.exists() else folder / "sessions.db"
    return next((folder / "sessions").rglob("session.v4.jsonl*"))


def _start_of_tail(kind: Kind, data: bytes) -> int:
    if kind == "zstd":
        return data.rindex(_FRAME_MAGIC)
    return data.rindex(b"\n", 0, -1) + 1 if kind == "none" else len(data)


def _flipped_byte(bench: Bench, kind: Kind) -> Iterator[Point]:
    folder = bench.folder()
    report = bench.run(kind, folder)
    size = _log_file(kind, folder).stat().st_size
    for number, place in enumerate(range(size // 300, size, size // 150)):
        yield Point(f"byte {place}", partial(_flip, bench, kind, folder, report, place, number))


def _flip(bench: Bench, kind: Kind, folder: Path, report: Report, place: int, number: int) -> None:
    """A damaged log is refused and left alone, or it is used like any other."""
    damaged = bench.copy(folder)
    file = _log_file(kind, damaged)
    original = file.read_bytes()
    data = bytearray(original)
    data[place] ^= (0x01, 0x20, 0x80)[number % 3]
    file.write_bytes(data)
    try:
        events = stored_in(kind, damaged)
    except SessionPersistenceError:
        _refuses(kind, damaged, "write")
        assert file.read_bytes() == data, "a damaged log was written to"
        return
    if place < _start_of_tail(kind, original) - 1:
        # Only damage at the very end can be taken for a write that a crash cut off.
        assert len(events or ()) == report.stored, "stored events are gone, and nothing says so"
    if number % 5 == 0:
        anyio.run(_goes_on_or_says_why, kind, damaged, events, backend=bench.backend)


def _permission_lost(bench: Bench, kind: Kind) -> Iterator[Point]:
    """A file or folder that the user may not use, or only read, when the session is opened."""
    folder = bench.folder()
    report = bench.run(kind, folder)
    # SQLite removes what stands beside a database that nobody uses.
    for place in sorted(folder.rglob("*")):
        for mode in (0o000, 0o500 if place.is_dir() else 0o400):
            name = place.relative_to(folder).as_posix()
            yield Point(
                f"{name} {mode:03o}", partial(_deny, bench, kind, folder, report, name, mode)
            )


def _deny(bench: Bench, kind: Kind, folder: Path, report: Report, name: str, mode: int) -> None:
    denied = bench.copy(folder)
    places = [denied, *denied.rglob("*")]
    modes = {place: place.stat().st_mode for place in places}
    if os.geteuid() == 0:
        for place in places:
            os.chown(place, NOBODY, NOBODY)
    appended, stored = list(report.appended), report.stored
    for access in ("read", "write"):
        (denied / name).chmod(mode)
        opened = bench.run(kind, denied, {"open_as": access})
        for place in places:
            place.chmod(modes[place])
        if not opened.done:
            assert str(denied) in opened.failed, f"no file is named: {opened.failed}"
        appended += opened.appended
        stored = max(stored, opened.stored)
    anyio.run(_goes_on, kind, denied, left_over(kind, denied, Report(appended=appended), stored))
    shutil.rmtree(denied)


def _refuses(kind: Kind, folder: Path, access: Access) -> None:
    try:
        store_of(kind, folder).open(FAULTY, access)
    except SessionPersistenceError:
        return
    raise AssertionError(f"what cannot be read is opened for {access!r}")


FAULTS: Final[Mapping[str, Callable[[Bench, Kind], Iterator[Point]]]] = {
    "killed behind each event": partial(_killed, where="behind_event"),
    "killed at each append": partial(_killed, where="at_appended", step=2),
    "killed inside each write": partial(_killed, where="in_write"),
    "killed behind each write": partial(_killed, where="behind_write"),
    "killed amid the bytes": _killed_amid_the_bytes,
    "disk full": _disk_full,
    "permission lost": _permission_lost,
    "torn tail": _torn_tail,
    "flipped byte": _flipped_byte,
    "two processes": _two_processes,
    "clock goes backwards": partial(_killed, where="behind_event", step=4, clock_step=-60_000),
}


def main(arguments: Sequence[str]) -> int:
    """Print the table; the faults of `arguments`, by default all."""
    markdown = "--markdown" in arguments
    names = [name for name in arguments if name != "--markdown"]
    unknown = sorted(set(names).difference(FAULTS))
    if unknown:
        sys.stderr.write(f"no such fault: {unknown[0]}; there are: {', '.join(FAULTS)}\n")
        return 1
    failures: list[str] = []
    _print_row("", STORES, markdown=markdown)
    if markdown:
        _print_row("---", ["---"] * len(STORES), markdown=True)
    with Bench() as bench:
        for name in names or FAULTS:
            outcomes = {kind: run_fault(bench, name, kind) for kind in STORES}
            for kind, outcome in outcomes.items():
                failures += [f"{name}, {kind}, {failure}" for failure in outcome.failures]
            cells = [
                f"{outcome.survived} of {outcome.points}" if markdown else outcome.text
                for outcome in outcomes.values()
            ]
            _print_row(name, cells, markdown=markdown)
    sys.stdout.writelines(f"\n{failure}\n" for failure in failures)
    return 1 if failures else 0


def _print_row(name: str, cells: Sequence[str], *, markdown: bool) -> None:
    if markdown:
        line = f"| {' | '.join([name, *cells])} |"
    else:
        line = f"{name:{max(map(len, FAULTS))}}" + "".join(f"  {cell:>16}" for cell in cells)
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _note(report: Report, fact: Mapping[str, object]) -> None:
    match fact:
        case {"appended": str(event)}:
            report.appended.append(event)
        case {"stored": int(count)}:
            report.stored = count
        case {"request": int(length)}:
            report.requests.append(length)
        case {"entered": str(call_id)}:
            report.entered.append(call_id)
        case {"write": int(number)}:
            report.writes = number
        case {"failed": str(trace)}:
            report.failed = trace
        case {"status": int(status)}:
            report.status = status
        case {"done": _}:
            report.done = True
        case _:
            pass


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
