"""The state of one running turn."""

from dsh_agent import InboxState, ModelSelection
from dsh_llm import AbortSignal, Message
from dsh_session import Completed, MaxTokens, TurnEndReason

NOTHING = InboxState()
_CUT = MaxTokens()
_COMPLETED = Completed()


class Turn:
    """What a driver knows about the turn it runs."""

    __slots__ = (
        "claimed",
        "cut",
        "failure",
        "number",
        "owed",
        "selection",
        "signal",
        "step",
        "waited",
    )

    def __init__(self, number: int, signal: AbortSignal) -> None:
        self.number = number
        self.signal = signal
        self.step = 0
        """Of the last step that began."""
        self.selection: ModelSelection | None = None
        """Captured immediately before the claim."""
        self.claimed = NOTHING
        """Not yet part of the history."""
        self.waited = False
        """The scheduler has run since the claim."""
        self.owed = False
        """A request follows even for an empty batch."""
        self.cut = False
        """A step hit the output limit."""
        self.failure: Exception | None = None
        """Of the opening; reported once the driver's task runs."""

    @property
    def batch(self) -> tuple[Message, ...]:
        """The claimed messages in the order in which a step takes them."""
        return self.claimed.next_step + self.claimed.next_turn

    @property
    def ending(self) -> TurnEndReason:
        """How the turn ends when nothing goes wrong any more."""
        return _CUT if self.cut else _COMPLETED
