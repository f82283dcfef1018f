"""The public handle of an agent. Upstream: packages/agent/agent/src/agent.ts."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from dsh_cordis import Context
from dsh_llm import AbortSignal, Message
from dsh_session import CancelCause, Session, SessionId

from .types import AgentOptions, AgentStatus, InboxTarget, ModelSelection

T = TypeVar("T")


class Inbox(Protocol):
    """Pending input, durable in the session log.

    A message id is pending once over both lists. Every change is one logged splice, followed by
    `agent/inbox/discarded` and `agent/inbox/inserted`.
    """

    @property
    def next_turn(self) -> tuple[Message, ...]:
        """What opens coming turns, one message each."""
        ...

    @property
    def next_step(self) -> tuple[Message, ...]:
        """What joins the coming step."""
        ...

    def append(self, target: InboxTarget, message: Message) -> None:
        """Put a message behind the others.

        Raises:
            InboxError: The message id is pending already.
        """
        ...

    def prepend(self, target: InboxTarget, message: Message) -> None:
        """Put a message before the others."""
        ...

    def splice(
        self, target: InboxTarget, start: int, delete_count: int, inserted: Sequence[Message] = ()
    ) -> tuple[Message, ...]:
        """Replace a range; a negative `start` counts from the end, everything is clamped.

        Returns:
            The removed messages.
        """
        ...

    def replace(self, message_id: str, message: Message) -> bool:
        """Put a message in the place of a pending one; false when it is not pending."""
        ...

    def remove(self, message_id: str) -> bool:
        """Take a pending message out; false when it is not pending."""
        ...

    def clear(self) -> None:
        """Empty both lists, next-step first."""
        ...


class AgentModel(Protocol):
    """Which model the next step uses."""

    def current(self) -> ModelSelection | None:
        """The pending choice, else the one last used, else the options. Reading pins nothing."""
        ...

    def select(self, choice: ModelSelection) -> None:
        """Record a whole choice; steps already begun keep theirs."""
        ...


class Agent(Protocol):
    """A live agent: one session, one inbox, one driver."""

    @property
    def id(self) -> SessionId:
        """Equals `session.id`."""
        ...

    @property
    def options(self) -> AgentOptions:
        """What the agent was created with."""
        ...

    @property
    def session(self) -> Session:
        """The log and what is folded from it."""
        ...

    @property
    def inbox(self) -> Inbox:
        """Pending input."""
        ...

    @property
    def model(self) -> AgentModel:
        """Model selection."""
        ...

    @property
    def status(self) -> AgentStatus:
        """`running` while a driver drains the inbox."""
        ...

    @property
    def ctx(self) -> Context:
        """What is registered through it concerns this agent only and goes with it."""
        ...

    def send(self, message: Message | str, target: InboxTarget, wakeup: bool) -> None:
        """Deliver a message; the primitive under `followup`, `steer` and `inject`.

        A wake sent to an aborted activity always goes to the next turn and runs when that activity
        has ended.

        Raises:
            InboxError: The message is pending already, or no user message.
            AgentDisposedError: The agent is gone.
        """
        ...

    def followup(self, message: Message | str) -> None:
        """Queue a turn and wake the agent."""
        ...

    def steer(self, message: Message | str) -> None:
        """Join the running turn at its next step, or open one."""
        ...

    def inject(self, message: Message | str) -> None:
        """Join the next step whenever there is one, without waking the agent."""
        ...

    def cancel(self, cause: CancelCause | None = None, *, keep_inbox: bool = False) -> None:
        """Stop the current activity; the first cause counts.

        Args:
            cause: Why; `UserCancel()` by default.
            keep_inbox: Leave pending input alone instead of discarding it.
        """
        ...

    async def when_idle(self) -> None:
        """Return when nothing of this agent runs any more.

        Raises:
            AgentSelfWaitError: Called by what it would wait for.
        """
        ...

    async def run_maintenance(self, task: Callable[[AbortSignal], Awaitable[T]]) -> T:
        """Run `task` while no turn can begin; input given meanwhile waits.

        Raises:
            AgentBusyError: The agent is not idle.
            AgentCancelledError: `cancel` cut the task short.
        """
        ...


class AgentHandle:
    """An agent together with the right to end it."""

    __slots__ = (
        "_dispose",
        "agent",
    )

    def __init__(self, agent: Agent, dispose: Callable[[], Awaitable[None]]) -> None:
        self.agent = agent
        self._dispose = dispose

    def dispose(self) -> Awaitable[None]:
        """Start the teardown at once; await the result to see its end.

        Pending input is discarded, the turn is closed, what was logged is stored. Every call gives
        the same completion.

        Raises:
            Exception: What a stage of the teardown raised, when the result is awaited.
        """
        return self._dispose()

    async def __aenter__(self) -> Agent:
        return self.agent

    async def __aexit__(self, *exc: object) -> None:
        await self.dispose()
