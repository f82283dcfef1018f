"""The events of one turn as an iterator: what is logged, and what streams by."""

from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self, TypeAlias

import anyio
from typing_extensions import override

from dsh_agent import (
    Agent,
    AgentAssistantStream,
    AgentDisposed,
    AssistantFrame,
    InboxClaimed,
    InboxDiscarded,
)
from dsh_cordis import Handle
from dsh_llm import Message, create_user_message
from dsh_session import SessionEvent, SessionEventAppended, TurnEnd

TurnEvent: TypeAlias = SessionEvent | AssistantFrame
"""An event of the log, or a frame of an answer that is being streamed."""


class TurnEvents(AsyncIterator[TurnEvent]):
    """Sends a message and gives the events of the turn that takes it, `turn/end` last.

    Use it as `async with TurnEvents(agent, "Hi") as events:` and `async for event in events`. A
    message that is discarded, and an agent that goes away, end it early. Leaving the block stops
    the watching, not the turn: that is what `agent.cancel()` is for.
    """

    def __init__(self, agent: Agent, message: Message | str) -> None:
        self._agent = agent
        self._message = create_user_message(message) if isinstance(message, str) else message
        self._queue: deque[TurnEvent] = deque()
        self._wake = anyio.Event()
        self._handles: list[Handle] = []
        self._turn: int | None = None
        self._over = False
        self._entered = False

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError("these events were watched already: make a TurnEvents per message")
        self._entered = True
        on = self._agent.ctx.on
        self._handles = [
            on(InboxClaimed, self._claimed),
            on(InboxDiscarded, self._discarded),
            on(SessionEventAppended, self._appended),
            on(AgentAssistantStream, self._streamed),
            on(AgentDisposed, lambda event: self._end()),
        ]
        self._agent.followup(self._message)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    @override
    def __aiter__(self) -> Self:
        return self

    @override
    async def __anext__(self) -> TurnEvent:
        if not self._entered:
            raise RuntimeError("nothing is watched yet: write `async with TurnEvents(...) as ...`")
        while not self._queue:
            if self._over:
                raise StopAsyncIteration
            self._wake = anyio.Event()
            await self._wake.wait()
        return self._queue.popleft()

    def _claimed(self, event: InboxClaimed) -> None:
        if event.message.id == self._message.id:
            self._turn = event.turn

    def _discarded(self, event: InboxDiscarded) -> None:
        if event.message.id == self._message.id:
            self._end()

    def _appended(self, event: SessionEventAppended) -> None:
        if self._turn is None or event.session is not self._agent.session:
            return
        self._put(event.event)
        if isinstance(event.event.data, TurnEnd):
            self._end()

    def _streamed(self, event: AgentAssistantStream) -> None:
        if self._turn is not None:
            self._put(event.frame)

    def _put(self, event: TurnEvent) -> None:
        self._queue.append(event)
        self._wake.set()

    def _end(self) -> None:
        self._over = True
        self._wake.set()
        self._stop()

    def _stop(self) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            handle()
