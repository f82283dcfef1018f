"""The mock server as an HTTP client sees it (L156-L158, L211)."""

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import ByteReceiveStream, SocketStream

from dsh_llm_scripted import (
    BEHAVIOURS,
    Call,
    MockServer,
    Part,
    RecordedRequest,
    Reply,
    Speech,
    bytewise,
    load_script,
    rate_limit,
    raw_reply,
    split_at,
    stall,
    text_reply,
)

BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


class Answer:
    """A raw HTTP answer."""

    def __init__(self, data: bytes) -> None:
        head, _, self.rest = data.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        self.status = int(lines[0].split(" ")[1]) if data else 0
        pairs = (line.split(": ", 1) for line in lines[1:])
        self.headers = {name.lower(): value for name, value in pairs}

    def chunks(self) -> list[bytes]:
        found: list[bytes] = []
        rest = self.rest
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            found.append(rest[: int(size, 16)])
            rest = rest[int(size, 16) + 2 :]
        return found


def request(
    body: object = BODY,
    *,
    method: str = "POST",
    path: str = "/v1/chat/completions",
    headers: Mapping[str, str] | None = None,
) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + data


@asynccontextmanager
async def connected(server: MockServer) -> AsyncIterator[SocketStream]:
    async with await anyio.connect_tcp("127.0.0.1", server.port) as stream:
        yield stream


async def ask(server: MockServer, data: bytes | None = None) -> Answer:
    with anyio.fail_after(5):
        async with connected(server) as stream:
            await stream.send(request() if data is None else data)
            return Answer(await read_answer(stream))


async def read_answer(stream: ByteReceiveStream) -> bytes:
    data = b""
    try:
        while not _whole(data):
            data += await stream.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        pass
    return data


def _whole(data: bytes) -> bool:
    answer = Answer(data) if b"\r\n\r\n" in data else None
    if answer is None:
        return False
    length = answer.headers.get("content-length")
    if length is not None:
        return len(answer.rest) >= int(length)
    return answer.rest.endswith(b"0\r\n\r\n")


async def test_L156_steps_are_used_in_order_of_arrival() -> None:
    async with MockServer([text_reply("one"), "rate_limit"]) as server:
        first, second, third = [await ask(server) for _ in range(3)]
    assert (first.status, second.status, third.status) == (200, 429, 500)
    assert json.loads(third.rest)["error"]["code"] == "MOCK_SCRIPT_EXHAUSTED"
    assert [record.behaviour for record in server.requests] == [
        "success",
        "rate_limit",
        "exhausted",
    ]


async def test_L156_the_last_step_may_repeat() -> None:
    async with MockServer(["empty", text_reply("x")], repeat_last=True) as server:
        assert [(await ask(server)).status for _ in range(4)] == [200] * 4
    assert [record.behaviour for record in server.requests] == ["empty", *["success"] * 3]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (request(method="GET"), 405),
        (request(path="/v1/other"), 404),
        (request(headers={"authorization": "Bearer wrong"}), 401),
        (request(b"{", headers={"authorization": "Bearer key"}), 400),
        (b"nonsense\r\n\r\n", 400),
    ],
    ids=["method", "path", "key", "json", "not http"],
)
async def test_L156_refused_requests_use_no_step(data: bytes, status: int) -> None:
    async with MockServer([text_reply("x")], api_key="key") as server:
        answer = await ask(server, data)
        assert answer.status == status
        assert server.requests == []
        if status == 405:
            assert answer.headers["allow"] == "POST"
        good = request(headers={"authorization": "Bearer key"})
        assert (await ask(server, good)).status == 200


async def test_L157_every_behaviour_has_its_name_and_can_be_played() -> None:
    names = [name for name in BEHAVIOURS if name != "stall"]
    async with MockServer(names) as server:
        for _ in names:
            await ask(server)
        assert [record.behaviour for record in server.requests] == names
    assert [record.scripted for record in server.requests] == names


async def test_L157_random_is_reproducible() -> None:
    runs = []
    for _ in range(2):
        async with MockServer(["random"], repeat_last=True, seed=7) as server:
            for _ in range(12):
                await ask(server)
        assert {record.scripted for record in server.requests} == {"random"}
        runs.append([record.behaviour for record in server.requests])
    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 1


async def test_L157_raw_parts_are_chunks_of_their_own() -> None:
    parts: list[bytes | Part] = [b"data: a", Part(b"b\n\n", pause_s=0.01), b"c"]
    async with MockServer(raw_reply(parts, status=203, headers={"x-a": "1"})) as server:
        answer = await ask(server)
    assert (answer.status, answer.headers["x-a"]) == (203, "1")
    assert answer.chunks() == [b"data: a", b"b\n\n", b"c", b""]
    assert server.requests[0].chunks_sent == 3


def test_replies_can_be_cut_anywhere() -> None:
    reply = raw_reply([b"ab", b"cde"])
    assert [part.data for part in split_at(reply, [1, 4]).parts] == [b"a", b"bcd", b"e"]
    assert [part.data for part in bytewise(reply).parts] == [b"a", b"b", b"c", b"d", b"e"]
    assert bytewise(reply).body == b"abcde"


async def test_a_function_answers_the_parsed_body() -> None:
    def answer(body: Mapping[str, object]) -> Reply:
        return text_reply(str(body["model"]))

    def broken(body: Mapping[str, object]) -> Reply:
        raise ValueError("no such step")

    async with MockServer([answer, broken]) as server:
        assert b'"m"' in (await ask(server)).rest
        assert (await ask(server)).status == 500
    assert [record.outcome for record in server.requests] == ["completed", "server_error"]


async def test_connections_are_kept_for_the_next_request() -> None:
    async with (
        MockServer([text_reply("a"), text_reply("b")]) as server,
        connected(server) as stream,
    ):
        for _ in range(2):
            await stream.send(request())
            assert Answer(await read_answer(stream)).status == 200
    assert len({record.client_port for record in server.requests}) == 1


@pytest.mark.parametrize(
    ("step", "outcome"),
    [
        ("success", "completed"),
        ("connection_reset", "reset"),
        ("partial_disconnect", "reset"),
        ("rate_limit", "completed"),
    ],
)
async def test_L158_records(step: str, outcome: str) -> None:
    seen: list[RecordedRequest] = []
    async with MockServer([step], observer=seen.append) as server:
        await ask(server, request(headers={"X-Case": "Seven"}))
        with anyio.fail_after(5):
            assert await server.requests[0].ended() == outcome
    record = server.requests[0]
    assert seen == [record]
    assert (record.path, record.headers["x-case"], record.body) == (
        "/v1/chat/completions",
        "Seven",
        BODY,
    )


async def read_for_ever(stream: ByteReceiveStream) -> None:
    while True:
        await stream.receive()


async def test_a_reset_is_an_abort_and_no_clean_end() -> None:
    async with MockServer(["connection_reset", "partial_disconnect"]) as server:
        for expected in (anyio.BrokenResourceError, anyio.EndOfStream):
            with anyio.fail_after(5):
                async with connected(server) as stream:
                    await stream.send(request())
                    with pytest.raises(expected):
                        await read_for_ever(stream)


async def test_L158_a_client_that_leaves_is_recorded() -> None:
    async with MockServer(stall([b"data: x"])) as server:
        async with connected(server) as stream:
            await stream.send(request())
            await stream.receive()
        with anyio.fail_after(5):
            assert await server.requests[0].ended() == "client_closed"


async def test_L158_close_ends_stalled_connections_and_may_be_called_twice() -> None:
    async with MockServer(stall()) as server:
        async with connected(server) as stream:
            await stream.send(request())
            assert b"200" in await stream.receive()
            await server.close()
            with anyio.fail_after(5), pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
                await stream.receive()
        assert server.requests[0].outcome == "stalled"
        await server.close()


async def test_L158_a_failing_observer_changes_nothing() -> None:
    def fail(record: RecordedRequest) -> None:
        raise RuntimeError("telemetry is down")

    async with MockServer(["success", "success"], observer=fail) as server:
        assert [(await ask(server)).status for _ in range(2)] == [200, 200]


@pytest.mark.parametrize(("delay_s", "seconds"), [(1.0, "1"), (1.2, "2"), (3, "3")])
async def test_L158_retry_after_is_rounded_up(delay_s: float, seconds: str) -> None:
    async with MockServer(rate_limit(delay_s)) as server:
        assert (await ask(server)).headers["retry-after"] == seconds


async def test_an_error_of_the_body_passes_unwrapped() -> None:
    with pytest.raises(KeyError):
        async with MockServer("success"):
            raise KeyError("from the body")


def assistant(*ids: str, content: str = "") -> Mapping[str, object]:
    calls = [{"id": call_id, "function": {"name": "f", "arguments": "{}"}} for call_id in ids]
    return {"role": "assistant", "content": content, **({"tool_calls": calls} if calls else {})}


def answer_to(call_id: str, content: str = "ok") -> Mapping[str, object]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([USER, assistant("a", "b"), answer_to("b"), answer_to("a"), USER], None),
        ([USER, assistant("a"), USER], "stands before the answers"),
        ([USER, assistant("a")], "have no answer"),
        ([USER, answer_to("a")], "does not call"),
        ([assistant("a"), answer_to("a"), assistant("a"), answer_to("a")], "repeats"),
        ([assistant("")], "without an id"),
        ([{"role": "user", "content": ""}], "is empty"),
        ([assistant("a"), answer_to("a", "")], "is empty"),
        ([], "non-empty list"),
    ],
)
async def test_L211_strict_refuses_what_strict_providers_refuse(
    messages: list[Mapping[str, object]], problem: str | None
) -> None:
    async with MockServer(["success"], strict=True) as server:
        answer = await ask(server, request({"messages": messages}))
    assert answer.status == (200 if problem is None else 400)
    assert problem is None or problem in json.loads(answer.rest)["error"]["message"]


def test_scripts_can_be_written_as_json() -> None:
    script = load_script(
        json.dumps(
            [
                "rate_limit",
                {"kind": "text", "text": "Hello", "reasoning": "Greet."},
                {"kind": "tool-calls", "calls": [{"name": "f", "arguments": {"a": 1}}]},
                {"kind": "raw", "parts": ["x", {"data": "y", "pauseMs": 20}], "ending": "reset"},
            ]
        ).encode()
    )
    assert script == [
        "rate_limit",
        Speech(text="Hello", reasoning="Greet.", finish="stop"),
        Speech(calls=(Call("f", {"a": 1}),)),
        raw_reply([b"x", Part(b"y", 0.02)], ending="reset"),
    ]


@pytest.mark.parametrize("data", [b"{", b"{}", b'[{"kind": "x"}]', b'[{"kind": "text"}]'])
def test_a_broken_script_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a mock script"):
        load_script(data)


async def test_an_unknown_behaviour_names_the_known_ones() -> None:
    async with MockServer(["sucess"]) as server:
        answer = await ask(server)
    assert answer.status == 500
    assert "slow_success" in json.loads(answer.rest)["error"]["message"]


async def test_the_command_line_tool_serves_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"kind": "text", "text": "from file"}]', encoding="utf-8")
    command = [sys.executable, "-m", "dsh_llm_scripted", "--script", str(script)]
    with anyio.fail_after(20):
        async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
            try:
                assert process.stdout is not None
                line = (await process.stdout.receive()).decode()
                port = int(line.rpartition(":")[2].partition("/")[0])
                async with await anyio.connect_tcp("127.0.0.1", port) as stream:
                    await stream.send(request())
                    assert b"from " in await read_answer(stream)
            finally:
                process.terminate()
