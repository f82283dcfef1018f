"""The state of one running turn."""

from collections.abc import Sequence

from dsh_agent import ModelSelection
from dsh_llm import AbortSignal, Message
from dsh_session import Completed, MaxTokens, TurnEndReason


class Turn:
    """What a driver knows about the turn it runs."""

    def __init__(self, number: int, signal: AbortSignal) -> None:
        self.number = number
        self.signal = signal
        self.step = 0
        """Of the last step that began."""
        self.selection: ModelSelection | None = None
        """Captured immediately before the claim."""
        self.batch: Sequence[Message] = ()
        self.waited = False
        """The scheduler has run since the claim."""
        self.owed = False
        """A request follows even for an empty batch."""
        self.cut = False
        """A step hit the output limit."""
        self.failure: Exception | None = None
        """Of the opening; reported once the driver's task runs."""

    @property
    def ending(self) -> TurnEndReason:
        """How the turn ends when nothing goes wrong any more."""
        return MaxTokens() if self.cut else Completed()
