"""The process that dies: runs a recorded turn over a store, and is killed where a case says.

Started by `fault_matrix.py`. Each line of its input is a case; for each one it forks, so that a
case costs no start of an interpreter, and writes what happened to its output: one JSON line as
soon as a thing is true, the last one with the status of the process that ran the case.
"""

import gc
import importlib
import os
import resource
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import anyio
import msgspec
from typing_extensions import override

import dsh_llm_scripted
from dsh_cordis import Context
from dsh_llm import GenerateOptions, StreamChunk
from dsh_llm_scripted import Call, Entry, ScriptedAdapter, call_chunks, text_chunks
from dsh_session import (
    SessionConfig,
    SessionEvent,
    SessionEventAppended,
    SessionHeader,
    SessionId,
    SessionMeta,
    TodoWrite,
    encode_event,
)
from dsh_session_jsonl import JsonlStore
from dsh_session_persistence import (
    Access,
    SessionListing,
    SessionLog,
    SessionLogStore,
    SessionPersistence,
    SessionPersistenceSnapshot,
)
from dsh_session_sqlite import SqliteStore
from dsh_spine import spine
from dsh_tools import ToolRunContext, tool

FAULTY = SessionId("faulty")
NOBODY = 65_534
OUTPUT = os.dup(1)
_CASE_S = 20
real_write = os.write
real_connect = sqlite3.connect


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """What to run and where to die."""

    store: Literal["none", "zstd", "sqlite"]
    folder: str
    backend: str = "asyncio"
    behind_event: int | None = None
    """Die when this event was stored, each being a batch of its own."""
    at_appended: int | None = None
    """Die when this event was appended, stored or not."""
    in_write: int | None = None
    """Die when half of this write was done; for SQLite before this commit."""
    behind_write: int | None = None
    """Die when this write was done, before it is synced; for SQLite behind this commit."""
    size_limit: int | None = None
    """No file grows beyond this."""
    at_limit: Literal["die", "fail"] = "fail"
    """Die inside the write that meets the limit, or see it fail like on a full disk."""
    hold: bool = False
    """Stop inside a tool body until somebody kills the process."""
    clock_step: int = 7
    open_as: Access | None = None
    """Only open what is stored, as a user who may do what the modes of the files say."""


def say(**facts: object) -> None:
    """Tell the matrix, past every buffer."""
    real_write(OUTPUT, msgspec.json.encode(facts) + b"\n")


def die() -> None:
    """End as if the power of the process were cut."""
    os.kill(os.getpid(), signal.SIGKILL)


def store_of(case: Case) -> SessionLogStore:
    """The store of a case, as a user of the package makes it."""
    if case.store == "sqlite":
        return SqliteStore(Path(case.folder) / "sessions.db")
    return JsonlStore(Path(case.folder) / "sessions", case.store)


class WatchedLog(SessionLog):
    """A log that tells what was stored, and may store event by event."""

    def __init__(self, inner: SessionLog, case: Case) -> None:
        self._inner = inner
        self._case = case

    @property
    @override
    def header(self) -> SessionHeader:
        return self._inner.header

    @property
    @override
    def inherited_event_count(self) -> int:
        return self._inner.inherited_event_count

    @property
    @override
    def end(self) -> int:
        return self._inner.end

    @property
    @override
    def materialized(self) -> bool:
        return self._inner.materialized

    @property
    @override
    def path(self) -> Path | None:
        return self._inner.path

    @override
    def read(self) -> Sequence[SessionEvent]:
        return self._inner.read()

    @override
    def append(self, events: Sequence[SessionEvent]) -> None:
        last = self._case.behind_event
        for batch in [events] if last is None else [[event] for event in events]:
            self._inner.append(batch)
            say(stored=self._inner.end)
            if last is not None and batch[-1].seq >= last:
                die()

    @override
    def flush(self) -> None:
        self._inner.flush()
        say(stored=self._inner.end)

    @override
    def close(self) -> None:
        self._inner.close()


class WatchedStore(SessionLogStore):
    """A store whose logs are watched."""

    def __init__(self, case: Case) -> None:
        self._inner = store_of(case)
        self._case = case

    @override
    def create(self, header: SessionHeader, inherited_event_count: int) -> SessionLog:
        return WatchedLog(self._inner.create(header, inherited_event_count), self._case)

    @override
    def open(self, session_id: SessionId, access: Access) -> SessionLog:
        return self._inner.open(session_id, access)

    @override
    def stat(self, session_id: SessionId) -> SessionPersistenceSnapshot:
        return self._inner.stat(session_id)

    @override
    def list(self) -> SessionListing:
        return self._inner.list()


class WatchedPersistence(SessionPersistence):
    """The service over a `WatchedStore`."""

    def __init__(self, ctx: Context, case: Case) -> None:
        super().__init__(ctx, WatchedStore(case))


class DyingConnection(sqlite3.Connection):
    """A connection that counts commits and ends the process at one of them."""

    case: Case
    commits = 0

    @override
    def execute(self, sql: str, parameters: Sequence[object] = (), /) -> sqlite3.Cursor:  # type: ignore[override]  # our statements bind by position only
        kind = type(self)
        begun = sql == "COMMIT" and self.total_changes > 0
        if begun:
            kind.commits += 1
            say(write=kind.commits)
            if kind.commits == kind.case.in_write:
                die()
        cursor = super().execute(sql, parameters)
        if begun and kind.commits == kind.case.behind_write:
            die()
        return cursor


def install_kill_points(case: Case) -> None:
    """Make this process die inside a write."""
    writes = 0

    def dying_write(descriptor: int, data: bytes | memoryview) -> int:
        nonlocal writes
        writes += 1
        say(write=writes)
        if writes == case.in_write:
            real_write(descriptor, data[: len(data) // 2])
            die()
        written = real_write(descriptor, data)
        if writes == case.behind_write:
            die()
        return written

    def connect(*args: object, **options: object) -> sqlite3.Connection:
        DyingConnection.case = case
        return real_connect(*args, factory=DyingConnection, **options)  # type: ignore[call-overload,no-any-return]  # handed on as it came

    os.write = dying_write  # type: ignore[assignment]  # nobody here writes other buffers
    sqlite3.connect = connect  # type: ignore[assignment]  # the same call with a class of ours


def limit_files(size: int, at_limit: str) -> None:
    """Let no file grow beyond `size` bytes."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if at_limit == "die" else signal.SIG_IGN)


def lift_limit() -> None:
    """The disk has room again."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def clock(step: int) -> Callable[[], int]:
    """A clock that moves by `step` ms a look, backwards too."""
    now = 1_789_000_000_000

    def now_ms() -> int:
        nonlocal now
        now += step
        return now

    return now_ms


def script_of(session_seq: Callable[[], int], meanwhile: Callable[[], None]) -> list[Entry]:
    """The model: two calls with input arriving meanwhile, an answer, and two turns more."""

    def answer(chunks: list[StreamChunk]) -> Callable[[GenerateOptions], list[StreamChunk]]:
        def play(options: GenerateOptions) -> list[StreamChunk]:
            say(request=session_seq())
            return chunks

        return play

    def calls(options: GenerateOptions) -> list[StreamChunk]:
        say(request=session_seq())
        meanwhile()
        looks = [Call("look", {"at": place}, id=f"look-{place}") for place in ("left", "right")]
        return call_chunks(*looks, text="Let me look.", reasoning="Two places.")

    return [calls, *(answer(text_chunks(text)) for text in ("Both are fine.", "Go on.", "Yes."))]


async def run_turns(case: Case) -> None:
    """A conversation of three turns, the first one with tools."""
    with anyio.fail_after(_CASE_S):
        await converse(case)


async def converse(case: Case) -> None:
    """Run the turns, however long they take."""
    async with Context() as ctx:
        _ = ctx.plugin(spine, {"sessions": SessionConfig(now_ms=clock(case.clock_step))})
        _ = ctx.plugin(WatchedPersistence, case)
        await ctx.settled()
        ctx.on(SessionEventAppended, lambda event: appended(case, event.event), everywhere=True)
        ctx.tools.register(look_tool(case))

        def meanwhile() -> None:
            handle.agent.steer("Hurry.")
            handle.agent.followup("And now?")

        adapter = ScriptedAdapter(script_of(lambda: handle.agent.session.seq, meanwhile))
        _ = ctx.plugin(dsh_llm_scripted, adapter)
        await ctx.settled()
        handle = await ctx.agents.create(
            session_id=FAULTY, provider="scripted", model="m", meta=SessionMeta(cwd="/srv/demo")
        )
        for text in ("Look around.", "Really?"):
            handle.agent.followup(text)
            await handle.agent.when_idle()
        lift_limit()
        await ctx.sessions.flush(handle.agent.session)
        say(done=handle.agent.session.seq)


def appended(case: Case, event: SessionEvent) -> None:
    """Tell that an event is in the log."""
    say(appended=encode_event(event).decode())
    if event.seq == case.at_appended:
        die()


def look_tool(case: Case) -> object:
    """A tool that tells that its body was entered."""

    @tool
    async def look(run: ToolRunContext, at: str) -> str:
        """Look at a place.

        Args:
            at: Which place.
        """
        say(entered=run.call_id)
        if case.hold:
            say(holding=os.getpid())
            await anyio.sleep_forever()
        return f"nothing {at}"

    return look


def open_stored(case: Case, access: Access) -> None:
    """Open the session, and begin to write; root gives up its rights first."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    log = store_of(case).open(FAULTY, access)
    if access == "write":
        event = SessionEvent(type="todo/write", seq=log.end, time=0, data=TodoWrite(todos=()))
        say(appended=encode_event(event).decode())
        log.append([event])
        say(stored=log.end)
    log.close()


def run_case(case: Case) -> None:
    """Run in the forked process; never returns to the loop of cases."""
    install_kill_points(case)
    if case.size_limit is not None:
        limit_files(case.size_limit, case.at_limit)
    try:
        if case.open_as is not None:
            open_stored(case, case.open_as)
            say(done=True)
        else:
            anyio.run(run_turns, case, backend=case.backend)
    except BaseException as error:  # noqa: BLE001  # the end of the process: told to the matrix
        lift_limit()
        say(failed="".join(traceback.format_exception(error)))
        os._exit(1)
    os._exit(0)


def main() -> None:
    """Run the cases of the input, one after another."""
    # What libraries print must not mix with the report.
    os.dup2(2, 1)
    # Imported once, before the forks: they are half of what a case costs.
    for name in (
        "griffe",
        "zstandard",
        "encodings.utf_16_le",
        "anyio._backends._asyncio",
        "anyio._backends._trio",
    ):
        importlib.import_module(name)
    gc.freeze()
    for line in sys.stdin.buffer:
        case = msgspec.json.decode(line, type=Case)
        process = os.fork()
        if not process:
            run_case(case)
        _, status = os.waitpid(process, 0)
        say(status=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
