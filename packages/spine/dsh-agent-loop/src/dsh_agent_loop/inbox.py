"""The durable inbox: commands over the folded log, and the loop's claim."""

from collections.abc import Sequence
from typing import Protocol

from dsh_agent import (
    Agent,
    InboxClaimed,
    InboxDiscarded,
    InboxError,
    InboxInserted,
    InboxState,
    InboxTarget,
)
from dsh_llm import Message
from dsh_session import InboxSpliced


class InboxOwner(Agent, Protocol):
    """What the inbox asks of its agent."""

    def inbox_state(self) -> InboxState:
        """The pending messages."""
        ...

    def guard(self, action: str) -> None:
        """Refuse to act on an agent that is gone."""
        ...


class LoopInbox:
    """Pending input of one agent; every change is one logged splice."""

    __slots__ = ("_agent",)

    def __init__(self, agent: InboxOwner) -> None:
        self._agent = agent

    @property
    def next_turn(self) -> tuple[Message, ...]:
        """What opens coming turns, one message each."""
        return self._agent.inbox_state().next_turn

    @property
    def next_step(self) -> tuple[Message, ...]:
        """What joins the coming step."""
        return self._agent.inbox_state().next_step

    @property
    def pending(self) -> bool:
        """Whether anything waits."""
        state = self._agent.inbox_state()
        return bool(state.next_turn or state.next_step)

    def append(self, target: InboxTarget, message: Message) -> None:
        """Put a message behind the others."""
        self.splice(target, len(self._agent.inbox_state().list_of(target)), 0, (message,))

    def prepend(self, target: InboxTarget, message: Message) -> None:
        """Put a message before the others."""
        self.splice(target, 0, 0, (message,))

    def splice(
        self, target: InboxTarget, start: int, delete_count: int, inserted: Sequence[Message] = ()
    ) -> tuple[Message, ...]:
        """Replace a range; a negative `start` counts from the end, everything is clamped.

        Returns:
            The removed messages.

        Raises:
            InboxError: An inserted message is pending already, or no user message.
        """
        self._agent.guard("change its inbox")
        current = self._agent.inbox_state().list_of(target)
        start = max(0, start + len(current)) if start < 0 else min(start, len(current))
        count = max(0, min(delete_count, len(current) - start))
        removed = current[start : start + count]
        if not removed and not inserted:
            return ()
        self._check_inserted(inserted, removed)
        event = self._agent.session.append(
            InboxSpliced(
                target=target,
                start=start,
                removed_count=count or None,
                inserted=tuple(inserted),
                outcome="canceled" if count else None,
            )
        )
        stored = event.data.inserted if isinstance(event.data, InboxSpliced) else tuple(inserted)
        ctx = self._agent.ctx
        for message in removed:
            ctx.emit(InboxDiscarded(agent=self._agent, message=message))
        if stored and ctx.has_listeners(InboxInserted, self._agent):
            for message in stored:
                ctx.emit(InboxInserted(agent=self._agent, message=message))
        return removed

    def replace(self, message_id: str, message: Message) -> bool:
        """Put a message in the place of a pending one; false when it is not pending."""
        found = self._find(message_id)
        if found is not None:
            self.splice(found[0], found[1], 1, (message,))
        return found is not None

    def remove(self, message_id: str) -> bool:
        """Take a pending message out; false when it is not pending."""
        found = self._find(message_id)
        if found is not None:
            self.splice(found[0], found[1], 1)
        return found is not None

    def clear(self) -> None:
        """Empty both lists, next-step first."""
        self.splice("next-step", 0, len(self.next_step))
        self.splice("next-turn", 0, len(self.next_turn))

    def claim(self, turn: int, *, boundary: bool) -> InboxState:
        """Take the batch of the coming step: all of next-step, and at a boundary one turn."""
        state = self._agent.inbox_state()
        steps: tuple[Message, ...] = ()
        turns: tuple[Message, ...] = ()
        try:
            if state.next_step:
                self._take("next-step", len(state.next_step))
                steps = state.next_step
            if boundary and state.next_turn:
                self._take("next-turn", 1)
                turns = state.next_turn[:1]
        finally:
            # What was taken before the log refused the rest is lost, and told all the same.
            batch = (*steps, *turns)
            ctx = self._agent.ctx
            if batch and ctx.has_listeners(InboxClaimed, self._agent):
                for message in batch:
                    ctx.emit(InboxClaimed(agent=self._agent, message=message, turn=turn))
        return InboxState(next_step=steps, next_turn=turns)

    def give_back(self, claimed: InboxState) -> None:
        """Put what was claimed where it came from, before what has come since."""
        self.splice("next-step", 0, 0, claimed.next_step)
        self.splice("next-turn", 0, 0, claimed.next_turn)

    def _take(self, target: InboxTarget, count: int) -> None:
        self._agent.session.append(
            InboxSpliced(target=target, start=0, removed_count=count, inserted=())
        )

    def _find(self, message_id: str) -> tuple[InboxTarget, int] | None:
        state = self._agent.inbox_state()
        for position, message in enumerate(state.next_step):
            if message.id == message_id:
                return "next-step", position
        for position, message in enumerate(state.next_turn):
            if message.id == message_id:
                return "next-turn", position
        return None

    def _check_inserted(self, inserted: Sequence[Message], removed: Sequence[Message]) -> None:
        state = self._agent.inbox_state()
        pending = {message.id for message in (*state.next_turn, *state.next_step)}
        pending.difference_update(message.id for message in removed)
        for message in inserted:
            if message.role != "user":
                raise InboxError(
                    f"message {message.id!r} has role {message.role!r}; "
                    "an inbox takes user messages, see `create_user_message()`",
                    "INBOX_INVALID_MESSAGE",
                )
            if message.id in pending:
                raise InboxError(
                    f"message {message.id!r} is pending already; "
                    "use `inbox.replace()` to change it",
                    "INBOX_DUPLICATE_MESSAGE",
                )
            pending.add(message.id)
