"""What a session costs beside a log written by hand: `python tests/benchmarks/session.py [--quick]`.

Every row is a ratio measured in one run: our time (or memory) divided by that of the baseline beside
it, which does the same work on dicts with `msgspec` and a file. Cases are interleaved and the best
round counts; the collector of garbage stays on. `--quick` takes small logs and one round, to see
that it works.
"""

import gc
import json
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

import anyio
import msgspec

import dsh_session_jsonl
from dsh_cordis import Context
from dsh_llm import BlockStart, StreamChunk, TextDelta, create_user_message
from dsh_session import (
    AssistantAttempt,
    AssistantMessageEvent,
    CheckedLog,
    Completed,
    Session,
    SessionEvent,
    SessionStore,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
    UserMessageEvent,
    event_to_json,
    interrupted_turn_closers,
)
from dsh_session_jsonl import JsonlStore
from dsh_session_persistence.testing.conversation import (
    HEADER,
    ID,
    append_all,
    payloads,
    stream_of,
    turn_of,
)
from dsh_session_projection import ProjectionDefinition, SessionProjectionRegistry

MESSAGES: Final = frozenset(["system/message", "user/message", "assistant/message", "tool/result"])


BLOCK: Final = 15


class Row(NamedTuple):
    """One line of the table."""

    subject: str
    baseline: str
    ratio: float
    target: float | None
    detail: str = ""


def session_of(events: int) -> Session:
    """A session of at least that many events."""
    session = Session.create(ID, header=HEADER)
    turn = 0
    while session.seq < events:
        turn += 1
        append_all(session, list(payloads(turn_of(turn))))
    return session


# ---- measuring ---------------------------------------------------------------------------------


def best_of(rounds: int, *cases: Callable[[], object]) -> list[float]:
    """Best seconds of each case, the cases interleaved."""
    best = [float("inf")] * len(cases)
    for _ in range(rounds):
        for index, case in enumerate(cases):
            gc.collect()
            started = time.perf_counter()
            case()
            best[index] = min(best[index], time.perf_counter() - started)
    return best


async def undisturbed(blocks: int, *cases: Callable[[], Awaitable[object]]) -> list[float]:
    """Seconds of each case that waits for the disk: of all calls the fastest tenth.

    In blocks and not call by call: a file system waits for company when syncs come from several
    threads in turn. What others do to the disk meanwhile is in the slower nine tenths.
    """
    times: list[list[float]] = [[] for _ in cases]
    for _ in range(blocks):
        for kept, case in zip(times, cases, strict=True):
            for _ in range(BLOCK):
                started = time.perf_counter()
                await case()
                kept.append(time.perf_counter() - started)
    return [sorted(kept)[len(kept) // 10] for kept in times]


def memory_of(build: Callable[[], object]) -> int:
    """Bytes that the result of `build` keeps alive."""
    gc.collect()
    tracemalloc.start()
    kept = build()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return size


# ---- the log by hand ---------------------------------------------------------------------------


def lines_by_hand(path: Path) -> list[dict[str, object]]:
    """Every line of a file as a dict, by the fastest decoder there is."""
    decode = msgspec.json.Decoder(dict[str, object]).decode
    return [decode(line) for line in path.read_bytes().split(b"\n")[:-1]]


def resume_by_hand(path: Path) -> list[object]:
    """The history of a log without replacements, checked for its order only."""
    messages: list[object] = []
    for seq, event in enumerate(lines_by_hand(path)[1:]):
        if event["seq"] != seq:
            raise ValueError(f"expected seq {seq}, found {event['seq']}")
        if event["type"] in MESSAGES:
            data = event["data"]
            assert isinstance(data, dict)
            messages.append(data if event["type"] == "user/message" else data["message"])
    return messages


class HandLog:
    """A file that dicts are appended to."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._encoder = msgspec.json.Encoder()

    def append(self, events: Sequence[object]) -> None:
        """Write a batch and wait for the disk."""
        data = b"".join(self._encoder.encode(event) + b"\n" for event in events)
        os.write(self._file, data)
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


# ---- the rows ----------------------------------------------------------------------------------


def appending(n: int, rounds: int) -> Iterator[Row]:
    """Appending to a long log against a short one, and the history after one more event."""
    short, long = session_of(100), session_of(n)
    turn = [list(payloads(turn_of(number))) for number in range(2, 22)]

    def append(session: Session) -> Callable[[], object]:
        def run() -> None:
            for data in turn:
                append_all(session, data)

        return run

    best = best_of(rounds, append(short), append(long))
    yield Row(f"append at event {n:,}", "append at event 100", best[1] / best[0], 1.2)
    yield _live(rounds)
    message = UserMessageEvent(message=create_user_message("One more."))

    def derive() -> None:
        for _ in range(50):
            long.append(message, surface_op="append")
            long.derive_messages()

    history = long.derive_messages()
    best = best_of(rounds, lambda: [list(history) for _ in range(50)], derive)
    what = f"append and derive, {len(history):,} messages"
    yield Row(what, "copying the list of messages", best[1] / best[0], None)


def _live(rounds: int) -> Row:
    """Turns of a session that lives in a store, and is followed by three projections."""
    turns = [list(payloads(turn_of(number))) for number in range(1, 101)]
    copies = session_of(0)
    for data in turns:
        append_all(copies, data)
    dicts = [event_to_json(event) for event in copies.events]

    async def ours() -> float:
        async with Context() as ctx:
            _ = ctx.plugin(SessionStore)
            _ = ctx.plugin(SessionProjectionRegistry)
            await ctx.settled()
            for key in ("one", "two", "three"):
                ctx.session_projections.register(counting(key))
            session = ctx.sessions.create(ID)
            return best_of(1, lambda: append_all(session, list(chain(*turns))))[0]

    def hand() -> object:
        return [json.dumps({**event, "time": time.time()}) for event in dicts]

    times = [(anyio.run(ours), best_of(1, hand)[0]) for _ in range(rounds)]
    ratio = min(ours for ours, _ in times) / min(hand for _, hand in times)
    detail = f"{len(dicts) // len(turns)} events"
    return Row("append a turn, three projections", "json.dumps of its events", ratio, None, detail)


def opening(path: Path, root: Path, count: int, rounds: int) -> Iterator[Row]:
    """Reading a whole log."""
    size = path.stat().st_size

    def read() -> object:
        return JsonlStore(root, "none").open(ID, "read").read()

    def read_streams() -> object:
        events = JsonlStore(root, "none").open(ID, "read").read()
        for event in events:
            if isinstance(event.data, AssistantMessageEvent):
                len(event.data.stream)
        return events

    ours, streams, hand = best_of(rounds, read, read_streams, lambda: lines_by_hand(path))
    by_hand = "msgspec.json.decode of its lines"
    detail = f"{count:,} events, {size >> 20} MiB"
    yield Row("open a log", by_hand, ours / hand, 2.0, detail)
    detail = "which opening leaves as text"
    yield Row("open a log, and read every stream", by_hand, streams / hand, 2.0, detail)
    gc.disable()
    try:
        ours, hand = best_of(rounds, read, lambda: lines_by_hand(path))
    finally:
        gc.enable()
    detail = "dicts make the collector work more than events do"
    yield Row("open a log without a collector", by_hand, ours / hand, 2.0, detail)
    kept = memory_of(read)
    dicts = memory_of(lambda: lines_by_hand(path))
    detail = f"{kept // count} bytes per event, its line has {size // count}"
    yield Row("memory of an open log", "its lines as dicts", kept / dicts, None, detail)


def resuming(folder: Path, turns: int, rounds: int) -> Iterator[Row]:
    """A conversation that goes on."""
    session = Session.create(ID, header=HEADER)
    for turn in range(1, turns + 1):
        append_all(session, list(payloads(turn_of(turn))))
    path = store(folder, session.events)

    def resume() -> object:
        log = JsonlStore(folder, "none").open(ID, "write")
        events = CheckedLog.of(log.read())
        closers = interrupted_turn_closers(events)
        restored = Session.from_restore(ID, events.extended(closers), log.header)
        messages = restored.derive_messages()
        log.close()
        return messages

    ours, hand = best_of(rounds, resume, lambda: resume_by_hand(path))
    yield Row(f"resume {turns:,} turns", "decode to dicts, collect messages", ours / hand, 2.0)


def store(root: Path, events: Sequence[SessionEvent]) -> Path:
    """Write a log below a root."""
    log = JsonlStore(root, "none").create(HEADER, 0)
    log.append(events)
    log.close()
    assert log.path is not None
    return log.path


def steady_sync(fd: object) -> None:
    """Wait as long as a disk would that is always equally fast."""
    time.sleep(0.002)


async def writing(folder: Path, rounds: int) -> list[Row]:
    """Batches through the store alone, and turns through session and service.

    On the disk of this machine, whose syncs take now a quarter and now ten milliseconds, and again
    with syncs that always take two, so that what is ours shows.
    """
    rows = await _written(folder / "disk", rounds, "")
    real = os.fsync
    os.fsync = steady_sync
    try:
        steady = await _written(folder / "steady", rounds, ", a sync takes 2 ms")
    finally:
        os.fsync = real
    return [row._replace(target=None) for row in rows] + steady


async def _written(folder: Path, rounds: int, detail: str) -> list[Row]:
    rows: list[Row] = []
    await anyio.Path(folder).mkdir()
    for size in (1, 1000):
        events = list(session_of(size * rounds * BLOCK).events)
        rows.append(await _batches(folder / f"batch-{size}", size, events, rounds))
    rows.append(await _turns(folder / "turns", rounds))
    return [row._replace(subject=row.subject + detail) for row in rows]


async def _batches(folder: Path, size: int, events: Sequence[SessionEvent], rounds: int) -> Row:
    log = JsonlStore(folder, "none").create(HEADER, 0)
    log.flush()
    by_hand = HandLog(folder.with_suffix(".hand"))
    batches = [events[at : at + size] for at in range(0, size * rounds * BLOCK, size)]
    plain = iter([[event_to_json(event) for event in batch] for batch in batches])
    typed = iter(batches)

    async def ours() -> None:
        log.append(next(typed))

    async def hand() -> None:
        by_hand.append(next(plain))

    times = await undisturbed(rounds, ours, hand)
    log.close()
    by_hand.close()
    what = f"write and sync {size:,} event{'s' if size > 1 else ''}"
    target = 2.0 if size > 1 else None
    return Row(what, "encode dicts, write, sync", times[0] / times[1], target)


async def _turns(folder: Path, rounds: int) -> Row:
    turns = iter([list(payloads(turn_of(turn))) for turn in range(1, rounds * BLOCK + 1)])
    copies = session_of(0)
    plain_turns = []
    for turn in range(1, rounds * BLOCK + 1):
        start = copies.seq
        append_all(copies, list(payloads(turn_of(turn))))
        plain_turns.append([event_to_json(event) for event in copies.events[start:]])
    plain = iter(plain_turns)
    async with Context() as ctx:
        _ = ctx.plugin(SessionStore)
        _ = ctx.plugin(dsh_session_jsonl, {"root": folder, "compression": "none"})
        await ctx.settled()
        session = ctx.sessions.prepare(ID)
        async with await ctx.session_persistence.create(session.header) as handle:
            await handle.flush()
            ctx.sessions.enter(session)
            ctx.sessions.announce(session)
            by_hand = HandLog(folder.with_suffix(".hand"))

            async def ours() -> None:
                append_all(session, next(turns))
                await ctx.sessions.flush(session)

            async def hand() -> None:
                by_hand.append(next(plain))

            times = await undisturbed(rounds, ours, hand)
            by_hand.close()
    return Row("a durable turn", "encode dicts, write, sync", times[0] / times[1], 1.5)


async def lasting(folder: Path, attempts: int) -> Row:
    """A whole life against its first half: attempts of 200 chunks, stored, with projections."""
    await anyio.Path(folder).mkdir()
    half = await _life(folder / "half", attempts // 2)
    whole = await _life(folder / "whole", attempts)
    what = f"{attempts:,} attempts of 200 chunks, stored, three projections"
    return Row(what, "half of them", whole / half, 2.5)


async def _life(folder: Path, attempts: int) -> float:
    async with Context() as ctx:
        _ = ctx.plugin(SessionStore)
        _ = ctx.plugin(SessionProjectionRegistry)
        _ = ctx.plugin(dsh_session_jsonl, {"root": folder, "compression": "none"})
        await ctx.settled()
        for key in ("one", "two", "three"):
            ctx.session_projections.register(counting(key))
        session = ctx.sessions.prepare(ID)
        async with await ctx.session_persistence.create(session.header):
            ctx.sessions.enter(session)
            ctx.sessions.announce(session)
            started = time.perf_counter()
            for turn in range(1, attempts + 1):
                append_attempt(session, turn)
                if turn % 50 == 0:
                    await ctx.sessions.flush(session)
            await ctx.sessions.flush(session)
            return time.perf_counter() - started


def append_attempt(session: Session, turn: int) -> None:
    """A turn of one attempt that left no message."""
    chunks: list[StreamChunk] = [BlockStart(0, "text")]
    chunks += (TextDelta(0, "word ") for _ in range(199))
    session.append(TurnStart(turn=turn))
    session.append(StepStart(turn=turn, step=1))
    session.append(AssistantAttempt(turn=turn, step=1, stream=stream_of(chunks)))
    session.append(StepEnd(turn=turn, step=1))
    session.append(TurnEnd(turn=turn, reason=Completed()))


def counting(key: str) -> ProjectionDefinition[int]:
    """Counts turns."""

    def count(state: int, event: SessionEvent) -> int:
        return state + 1 if isinstance(event.data, TurnEnd) else state

    return ProjectionDefinition(key=key, state_version=1, init=lambda *_: 0, apply=count)


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    lines = ["| what | beside | ratio | target | |", "|---|---|---|---|---|"]
    for row in rows:
        target = "" if row.target is None else f"at most {row.target}"
        cells = (row.subject, row.baseline, f"{row.ratio:.2f}", target, row.detail)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Measure, and print the table."""
    quick = "--quick" in arguments
    n, turns, rounds = (2_000, 20, 1) if quick else (100_000, 1_000, 5)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as name:
        folder = Path(name)
        rows = list(appending(n, rounds * 2))
        path = store(folder / "long", session_of(n).events)
        rows += opening(path, folder / "long", n, rounds)
        rows += resuming(folder / "resume", turns, rounds * 2)
        rows.append(anyio.run(lasting, folder / "life", 100 if quick else 5_000))
        rows += anyio.run(writing, folder, 1 if quick else 8)
    sys.stdout.write(table(rows) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
