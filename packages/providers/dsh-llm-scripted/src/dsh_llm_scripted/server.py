"""The mock provider: a real HTTP server on loopback that plays a script.

Upstream: packages/llm/llm-mock/src/server.ts.
"""

import random
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup
from structlog.typing import FilteringBoundLogger

from ._wire import ClientGoneError, Connection, Request, chunk_bytes, head_bytes
from .behaviours import named
from .dialects import COMPLETIONS, MESSAGES, Dialect, Speech, dialect_of
from .replies import Reply, error_reply

log: FilteringBoundLogger = structlog.get_logger(__name__)

Outcome = Literal["completed", "reset", "stalled", "client_closed", "server_error"]
JsonBody = Mapping[str, object]
Step = Reply | Speech | str | Callable[[JsonBody], Reply | Speech]
"""A reply, speech, the name of a behaviour, or a function that answers the parsed body."""


class RecordedRequest:
    """One request that used up a step of the script."""

    def __init__(
        self, path: str, headers: Mapping[str, str], body: JsonBody, client_port: int = 0
    ) -> None:
        self.path = path
        self.headers = headers
        """Names in lower case."""
        self.body = body
        self.client_port = client_port
        """Tells connections apart: equal for requests that share one."""
        self.scripted = ""
        """The behaviour the script names; `random` stays `random` here."""
        self.behaviour = ""
        """The behaviour that was played."""
        self.chunks_sent = 0
        self.outcome: Outcome | None = None
        """`None` until the answer is over."""
        self._ended = anyio.Event()

    async def ended(self) -> Outcome:
        """Wait until the answer is over."""
        await self._ended.wait()
        assert self.outcome is not None
        return self.outcome

    def _end(self, outcome: Outcome) -> bool:
        if self.outcome is not None:
            return False
        self.outcome = outcome
        self._ended.set()
        return True


class MockServer:
    """Plays a script over HTTP on 127.0.0.1, one step per request, in arrival order.

    Use it as an async context manager; `base_url` is what a provider profile takes.

    Args:
        script: The steps; one step alone is a script of one.
        repeat_last: Answer with the last step for ever instead of 500 `MOCK_SCRIPT_EXHAUSTED`.
        api_key: Require this key, as bearer token or as `x-api-key`; a wrong one gets 401 and uses
            no step.
        strict: Refuse, with 400, what strict providers refuse: calls without their answers,
            empty messages, repeated call ids. Such a request uses no step.
        seed: Seed of the `random` behaviour.
        port: Port to bind; 0 takes a free one.
        observer: Called with each record when its answer is over; what it raises is logged.
    """

    def __init__(
        self,
        script: Sequence[Step] | Step,
        *,
        repeat_last: bool = False,
        api_key: str | None = None,
        strict: bool = False,
        seed: int = 0,
        port: int = 0,
        observer: Callable[[RecordedRequest], None] | None = None,
    ) -> None:
        self.requests: list[RecordedRequest] = []
        """What used up a step, oldest first."""
        self._script = list(_steps(script))
        self._repeat_last = repeat_last
        self._api_key = api_key
        self._strict = strict
        self._chance = random.Random(seed)
        self._port = port
        self._observer = observer
        self._listener: socket.socket | None = None
        self._tasks: TaskGroup | None = None
        self._scope: anyio.CancelScope | None = None
        self._stopped = anyio.Event()

    @property
    def port(self) -> int:
        """The bound port."""
        if self._listener is None:
            raise RuntimeError("the mock server runs inside `async with MockServer(...)` only")
        return self._port

    @property
    def base_url(self) -> str:
        """Prefix of the endpoints, with `/v1`."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", self._port), backlog=128)
        self._listener.setblocking(False)
        self._port = self._listener.getsockname()[1]
        # Made here, not in __init__: synchronous tests build the server outside any event loop.
        self._scope = anyio.CancelScope()
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._serve, self._listener, self._scope, name="mock-server")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
        if self._tasks is not None:
            # Without the body's exception: it passes on as it is instead of inside a group.
            await self._tasks.__aexit__(None, None, None)

    async def close(self) -> None:
        """End every connection, stalled ones too, and the listener; again does nothing."""
        if self._scope is not None:
            self._scope.cancel()
        if self._tasks is not None:
            with anyio.CancelScope(shield=True):
                await self._stopped.wait()

    async def _serve(self, listener: socket.socket, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                async with anyio.create_task_group() as connections:
                    while True:
                        await anyio.wait_readable(listener)
                        try:
                            accepted, address = listener.accept()
                        except (BlockingIOError, ConnectionError):
                            continue
                        connections.start_soon(self._converse, Connection(accepted, address[1]))
        finally:
            anyio.notify_closing(listener)
            listener.close()
            self._stopped.set()

    async def _converse(self, connection: Connection) -> None:
        try:
            while (request := await connection.request()) is not None:
                if not await self._answer(connection, request):
                    break
        except ClientGoneError:
            pass  # the record of the request says so
        except ValueError as error:
            await _refuse_unreadable(connection, str(error))
        finally:
            connection.close()

    async def _answer(self, connection: Connection, request: Request) -> bool:
        """Answer one request; false when the connection is not to be used again."""
        body = _json_object(request.body)
        dialect = dialect_of(request.path)
        refusal = self._refusal(request, body, dialect)
        if refusal is not None or body is None:
            await _play(connection, refusal or _bad_json(dialect), lambda: None)
            return True
        record = RecordedRequest(request.path, request.headers, body, connection.client_port)
        self.requests.append(record)
        try:
            return await self._play_step(connection, record, dialect or COMPLETIONS)
        except ClientGoneError:
            self._end(record, "client_closed")
            raise
        except Exception as error:
            log.warning("mock_server.step_failed", step=record.scripted, exc_info=True)
            await _play(connection, _internal(repr(error)), lambda: None)
            self._end(record, "server_error")
            return True
        finally:
            self._end(record, "stalled")

    async def _play_step(
        self, connection: Connection, record: RecordedRequest, dialect: Dialect
    ) -> bool:
        reply = self._next_reply(record, dialect)

        def count() -> None:
            record.chunks_sent += 1

        await _play(connection, reply, count)
        match reply.ending:
            case "complete":
                exhausted = record.behaviour == "exhausted"
                self._end(record, "server_error" if exhausted else "completed")
                return True
            case "stall":
                await connection.pause(None)
            case "reset":
                connection.abort()
                self._end(record, "reset")
            case "disconnect":
                self._end(record, "reset")
        return False

    def _next_reply(self, record: RecordedRequest, dialect: Dialect) -> Reply:
        if not self._script:
            record.scripted = record.behaviour = "exhausted"
            return error_reply(
                "exhausted",
                500,
                "the mock server's script has no step left for this request",
                code="MOCK_SCRIPT_EXHAUSTED",
                kind="mock_error",
            )
        last = self._repeat_last and len(self._script) == 1
        step = self._script[0] if last else self._script.pop(0)
        record.scripted = _step_name(step)
        if isinstance(step, str):
            step = named(step, self._chance, dialect)
        said = step if isinstance(step, Reply | Speech) else step(record.body)
        reply = said if isinstance(said, Reply) else dialect.speak(said)
        record.behaviour = reply.name
        return reply

    def _refusal(
        self, request: Request, body: JsonBody | None, dialect: Dialect | None
    ) -> Reply | None:
        if dialect is None:
            known = f"{COMPLETIONS.path_end} or {MESSAGES.path_end}"
            return _client_error(404, f"no endpoint at {request.path!r}; use {known}")
        if request.method != "POST":
            return _refused(dialect, 405, f"{request.method} is not POST", {"allow": "POST"})
        if self._api_key is not None and not _has_key(request.headers, self._api_key):
            return _refused(dialect, 401, "Incorrect API key provided")
        problem = dialect.broken_rule(body) if self._strict and body is not None else None
        return None if problem is None else _refused(dialect, 400, problem)

    def _end(self, record: RecordedRequest, outcome: Outcome) -> None:
        if not record._end(outcome) or self._observer is None:
            return
        try:
            self._observer(record)
        except Exception:
            log.warning("mock_server.observer_failed", exc_info=True)


async def _play(connection: Connection, reply: Reply, sent: Callable[[], None]) -> None:
    if not reply.head:
        return
    headers = list(reply.headers)
    if not reply.chunked:
        body = reply.body
        headers.append(("content-length", str(len(body))))
        await connection.send(head_bytes(reply.status, headers) + body)
        sent()
        return
    headers.append(("transfer-encoding", "chunked"))
    await connection.send(head_bytes(reply.status, headers))
    for part in reply.parts:
        if part.pause_s:
            await connection.pause(part.pause_s)
        await connection.send(chunk_bytes(part.data))
        sent()
    if reply.ending == "complete":
        await connection.send(b"0\r\n\r\n")


async def _refuse_unreadable(connection: Connection, message: str) -> None:
    with suppress(ClientGoneError):
        await _play(connection, _client_error(400, message), lambda: None)


def _steps(script: Sequence[Step] | Step) -> Sequence[Step]:
    if isinstance(script, str | Reply | Speech) or callable(script):
        return [script]
    return script


def _step_name(step: Step) -> str:
    match step:
        case str():
            return step
        case Reply(name=name):
            return name
        case Speech():
            return COMPLETIONS.speak(step).name
        case _:
            return getattr(step, "__name__", "function")


def _json_object(data: bytes) -> JsonBody | None:
    try:
        parsed: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return parsed if isinstance(parsed, dict) else None


def _client_error(status: int, message: str, headers: Mapping[str, str] | None = None) -> Reply:
    return error_reply(
        "refused", status, message, code="mock", kind="invalid_request_error", headers=headers
    )


def _refused(
    dialect: Dialect, status: int, message: str, headers: Mapping[str, str] | None = None
) -> Reply:
    return dialect.error("refused", status, message, headers=headers)


def _has_key(headers: Mapping[str, str], key: str) -> bool:
    return headers.get("authorization") == f"Bearer {key}" or headers.get("x-api-key") == key


def _bad_json(dialect: Dialect | None) -> Reply:
    return _refused(dialect or COMPLETIONS, 400, "the body is not a JSON object")


def _internal(message: str) -> Reply:
    return error_reply("server_error", 500, message, code="mock", kind="mock_error")
