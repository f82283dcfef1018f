"""Bytes and resuming of a long conversation: `python tests/benchmarks/session_peers.py [turns]`.

The same texts go into our stores, into LangGraph's SQLite checkpointer and into the SQLite session
of the OpenAI Agents SDK, a turn at a time. Every row is a ratio measured in one run: bytes on the
disk after closing, and the best time from opening to the messages of the next request, divided by
those of a log of JSON lines written by hand. Rounds are interleaved and everything is imported
before the clock starts. A peer that is not installed has a row that says so.
"""

import gc
import importlib
import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Protocol

import anyio
import msgspec
from typing_extensions import override

from dsh_session import CheckedLog, Session, interrupted_turn_closers
from dsh_session_jsonl import JsonlStore
from dsh_session_persistence import SessionLogStore
from dsh_session_persistence.testing.conversation import (
    HEADER,
    ID,
    TOOL,
    Turn,
    append_all,
    payloads,
    turn_of,
)
from dsh_session_sqlite import SqliteStore


class Keeper(Protocol):
    """One way to keep a conversation in a folder of its own."""

    detail: str

    async def write(self, turns: Sequence[Turn]) -> None:
        """Store turn after turn, and close."""

    async def resume(self) -> Sequence[object]:
        """Open what is stored and give the messages of the next request."""


# ---- by hand -----------------------------------------------------------------------------------


def dicts_of(turn: Turn) -> list[dict[str, object]]:
    """The four messages as a chat API takes them."""
    function = {"name": TOOL, "arguments": turn.arguments}
    call = {"id": turn.call_id, "type": "function", "function": function}
    return [
        {"role": "user", "content": turn.asked},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": turn.call_id, "content": turn.result},
        {"role": "assistant", "content": turn.answer},
    ]


class HandKeeper(Keeper):
    """A JSON line for each message, a sync for each turn."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "log.jsonl"
        self.detail = "messages only, as JSON lines"

    @override
    async def write(self, turns: Sequence[Turn]) -> None:
        encode = msgspec.json.Encoder().encode
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for turn in turns:
            os.write(file, b"".join(encode(message) + b"\n" for message in dicts_of(turn)))
            os.fsync(file)
        os.close(file)

    @override
    async def resume(self) -> Sequence[object]:
        decode = msgspec.json.Decoder(dict[str, object]).decode
        file = os.open(self._path, os.O_RDONLY)
        data = os.read(file, os.fstat(file).st_size)
        os.close(file)
        return [decode(line) for line in data.split(b"\n")[:-1]]


# ---- ours --------------------------------------------------------------------------------------


class OurKeeper(Keeper):
    """A session in one of our stores, a durable batch for each turn."""

    def __init__(self, make: Callable[[], SessionLogStore]) -> None:
        self._make = make
        self.detail = "all events, each chunk with its time"

    @override
    async def write(self, turns: Sequence[Turn]) -> None:
        session = Session.create(ID, header=HEADER)
        log = self._make().create(HEADER, 0)
        stored = 0
        for turn in turns:
            append_all(session, payloads(turn))
            log.append(session.events[stored:])
            log.flush()
            stored = session.seq
        log.close()

    @override
    async def resume(self) -> Sequence[object]:
        log = self._make().open(ID, "write")
        events = CheckedLog.of(log.read())
        events = events.extended(interrupted_turn_closers(events))
        messages = Session.from_restore(ID, events, log.header).derive_messages()
        log.close()
        return messages


# ---- peers -------------------------------------------------------------------------------------


def peer(module: str) -> Any:
    """A module of a peer; `Any`, since the type checker runs where no peer is installed."""
    return importlib.import_module(module)


class LangGraphKeeper(Keeper):
    """A graph of one node, the fewest checkpoints that a turn can have, over `SqliteSaver`."""

    def __init__(self, folder: Path, *, durability: str | None = None, delta: bool = False) -> None:
        graph = peer("langgraph.graph")
        self._messages = peer("langchain_core.messages")
        self._saver = peer("langgraph.checkpoint.sqlite").SqliteSaver
        self._path = folder / "checkpoints.db"
        self._durability = durability
        self._turn: Turn | None = None
        self._config = {"configurable": {"thread_id": str(ID)}}
        reducer: object = peer("langgraph.graph.message").add_messages
        if delta:
            reducer = peer("langgraph.channels.delta").DeltaChannel(extended)
        fields = {"messages": Annotated[list, reducer]}
        state = type("State", (dict,), {"__annotations__": fields})
        self._graph = graph.StateGraph(state)
        self._graph.add_node("turn", self._reply)
        self._graph.add_edge(graph.START, "turn")
        self._graph.add_edge("turn", graph.END)
        self.detail = ""

    def _reply(self, _: object) -> dict[str, object]:
        turn = self._turn
        assert turn is not None
        arguments = msgspec.json.decode(turn.arguments)
        call = {"id": turn.call_id, "name": TOOL, "args": arguments}
        of = self._messages
        return {
            "messages": [
                of.AIMessage("", tool_calls=[call]),
                of.ToolMessage(turn.result, tool_call_id=turn.call_id),
                of.AIMessage(turn.answer),
            ]
        }

    @override
    async def write(self, turns: Sequence[Turn]) -> None:
        with self._saver.from_conn_string(str(self._path)) as saver:
            graph = self._graph.compile(checkpointer=saver)
            for turn in turns:
                self._turn = turn
                asked = {"messages": [self._messages.HumanMessage(turn.asked)]}
                graph.invoke(asked, self._config, durability=self._durability)
            query = "SELECT count(*) FROM checkpoints"
            (count,) = saver.conn.execute(query).fetchone()
        self.detail = f"checkpoints a turn: {count / len(turns):.0f}"

    @override
    async def resume(self) -> Sequence[object]:
        with self._saver.from_conn_string(str(self._path)) as saver:
            graph = self._graph.compile(checkpointer=saver)
            messages: list[object] = graph.get_state(self._config).values["messages"]
            return messages


def extended(state: Sequence[object], writes: Sequence[Sequence[object]]) -> list[object]:
    """The reducer of a channel that stores what is added only."""
    return [*state, *(message for write in writes for message in write)]


class AgentsSdkKeeper(Keeper):
    """`SQLiteSession`, the items of a turn added together."""

    def __init__(self, folder: Path) -> None:
        self._session = peer("agents.memory").SQLiteSession
        self._path = folder / "session.db"
        self.detail = "messages only, as JSON in rows"

    @override
    async def write(self, turns: Sequence[Turn]) -> None:
        session = self._session(str(ID), self._path)
        for turn in turns:
            await session.add_items(items_of(turn))
        session.close()

    @override
    async def resume(self) -> Sequence[object]:
        session = self._session(str(ID), self._path)
        items: list[object] = await session.get_items()
        session.close()
        return items


def items_of(turn: Turn) -> list[dict[str, object]]:
    """The four messages as items of the Responses API."""
    call_id, said = turn.call_id, {"type": "output_text", "text": turn.answer, "annotations": []}
    return [
        {"role": "user", "content": turn.asked},
        {"type": "function_call", "call_id": call_id, "name": TOOL, "arguments": turn.arguments},
        {"type": "function_call_output", "call_id": call_id, "output": turn.result},
        {"type": "message", "role": "assistant", "status": "completed", "content": [said]},
    ]


# ---- measuring ---------------------------------------------------------------------------------


class Row(NamedTuple):
    """One line of the table; without a keeper the peer is not installed."""

    subject: str
    keeper: Keeper | None
    folder: Path


def rows_below(root: Path) -> Iterator[Row]:
    """The log by hand first, then ours, then the peers."""

    def folder(name: str) -> Path:
        path = root / name
        path.mkdir()
        return path

    hand = folder("hand")
    yield Row("JSON lines by hand", HandKeeper(hand), hand)
    plain, zstd, ours = folder("plain"), folder("zstd"), folder("sqlite")
    yield Row("dsh-session-jsonl, plain", OurKeeper(lambda: JsonlStore(plain, "none")), plain)
    yield Row("dsh-session-jsonl, zstd", OurKeeper(lambda: JsonlStore(zstd, "zstd")), zstd)
    yield Row("dsh-session-sqlite", OurKeeper(lambda: SqliteStore(ours / "sessions.db")), ours)
    agents = folder("agents")
    there = find_spec("agents") is not None
    yield Row("OpenAI Agents SDK", AgentsSdkKeeper(agents) if there else None, agents)
    there = has_langgraph()
    subject, path = "LangGraph, `SqliteSaver`", folder("default")
    yield Row(subject, LangGraphKeeper(path) if there else None, path)
    path = folder("exit")
    keeper = LangGraphKeeper(path, durability="exit") if there else None
    yield Row(f'{subject}, `durability="exit"`', keeper, path)
    path = folder("delta")
    yield Row(
        f"{subject}, `DeltaChannel`", LangGraphKeeper(path, delta=True) if there else None, path
    )


def has_langgraph() -> bool:
    """Whether the graphs are there, and the checkpointer, which is a distribution of its own."""
    try:
        return find_spec("langgraph.graph") is not None and (
            find_spec("langgraph.checkpoint.sqlite") is not None
        )
    except ModuleNotFoundError:  # a parent is missing
        return False


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def fastest(keepers: Sequence[Keeper], rounds: int, last: Turn) -> list[float]:
    """Best seconds of resuming each, the keepers interleaved; what they give is checked."""
    best = [float("inf")] * len(keepers)
    for _ in range(rounds):
        for index, keeper in enumerate(keepers):
            gc.collect()
            started = time.perf_counter()
            messages = await keeper.resume()
            best[index] = min(best[index], time.perf_counter() - started)
            assert len(messages) == 4 * last.number, keeper
            assert last.answer in repr(messages[-1]), keeper
            del messages
    return best


async def measure(root: Path, count: int, rounds: int) -> str:
    """Store, resume, and give the table."""
    turns = [turn_of(number) for number in range(1, count + 1)]
    rows = list(rows_below(root))
    there = [(row.keeper, row.folder) for row in rows if row.keeper is not None]
    for keeper, _ in there:
        await keeper.write(turns)
    times = await fastest([keeper for keeper, _ in there], rounds, turns[-1])
    sizes = [size_of(folder) for _, folder in there]
    measured = iter(zip(times, sizes, strict=True))
    lines = [f"| {count:,} turns | bytes | resume | | |", "|---|---|---|---|---|"]
    for row in rows:
        if row.keeper is None:
            lines.append(f"| {row.subject} | not installed | not installed | | |")
            continue
        seconds, size = next(measured)
        ratios = f"{size / sizes[0]:.2f} | {seconds / times[0]:.1f}"
        figures = f"{size / 1e6:,.2f} MB, {seconds * 1e3:,.1f} ms"
        lines.append(f"| {row.subject} | {ratios} | {figures} | {row.keeper.detail} |")
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """Measure, and print the table."""
    count = int(arguments[0]) if arguments else 1_000
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as name:
        table = anyio.run(measure, Path(name), count, 10 if count >= 1_000 else 2)
    sys.stdout.write(table + f"\n\nSQLite {sqlite3.sqlite_version}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
