"""The record of one running call, as bodies, listeners and wrappers see it.

Upstream: packages/tools/tools/src/execution.ts.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar
from weakref import WeakSet

from dsh_agent import Agent
from dsh_brand import JsonValue
from dsh_cordis import Target
from dsh_llm import AbortController, AbortSignal, CallId, Message

from ._threads import run_in_thread
from .errors import ToolExecutionClosedError

P = ParamSpec("P")
T = TypeVar("T")

_EXECUTION_SIGNALS: Final[WeakSet[AbortSignal]] = WeakSet()
# Signals handed to bodies. A call made with one of them is given up together with its caller; the
# second latch of any other signal only ends waits.


class ToolToken:
    """Identity of one execution. Models repeat call ids, tokens are never repeated."""

    __slots__ = ("__weakref__",)


class ToolRunContext:
    """What a running call may read and contribute to; shared by everyone who takes part in it."""

    def __init__(
        self,
        name: str,
        arguments: JsonValue,
        call_id: CallId,
        signal: AbortSignal,
        root_call_id: CallId | None,
        agent: Agent | None,
        parent: ToolToken | None,
    ) -> None:
        """Made by the registry."""
        # By position and as little as can be: every call makes one.
        self._name = name
        self._arguments = arguments
        self._call_id = call_id
        self._root_call_id = root_call_id
        self._agent = agent
        self._parent = parent
        self._caller_signal = signal
        self._contexts: list[Message] = []  # threads append, too

    # What most calls never need, or set once, stands here as a default.
    _token: ToolToken | None = None
    _own: AbortController | None = None
    """Made for the first who asks for the signal: bodies that never wait do not."""
    _signal: AbortSignal | None = None
    """What a wrapper put in the place of the own signal."""
    _removers: tuple[Callable[[], None], ...] = ()
    _concluded = False
    _closed = False
    _given_up = False

    @property
    def token(self) -> ToolToken:
        """Correlates the events of this execution, by identity."""
        if self._token is None:
            # In one step: a thread may ask at the same time.
            token: ToolToken = self.__dict__.setdefault("_token", ToolToken())
            return token
        return self._token

    @property
    def name(self) -> str:
        """The called name; nobody has checked that such a tool exists."""
        return self._name

    @property
    def arguments(self) -> JsonValue:
        """What the model sent, frozen; text where it was no JSON."""
        return self._arguments

    @property
    def call_id(self) -> CallId:
        """Of this call."""
        return self._call_id

    @property
    def root_call_id(self) -> CallId:
        """The model's call that this one serves; equal to `call_id` for direct calls."""
        return self._call_id if self._root_call_id is None else self._root_call_id

    @property
    def agent(self) -> Agent | None:
        """Who calls."""
        return self._agent

    @property
    def parent(self) -> ToolToken | None:
        """Token of the enclosing transport call."""
        return self._parent

    @property
    def signal(self) -> AbortSignal:
        """Aborts when the call should end.

        A `tools/execute` wrapper may replace it, and restores it on every exit.
        """
        return self._own_controller().signal if self._signal is None else self._signal

    @signal.setter
    def signal(self, signal: AbortSignal) -> None:
        if self._accepts("the signal was replaced"):
            own = self._own is not None and signal is self._own.signal
            self._signal = None if own else signal

    def defer_context(self, message: Message) -> None:
        """Give the model a user message with its next step, behind this call's result.

        Raises:
            ValueError: The message is not of role ``user``.
            ToolExecutionClosedError: The result is frozen already.
        """
        if message.role != "user":
            raise ValueError(f"a deferred context must have role 'user', not {message.role!r}")
        if self._accepts("a context was deferred"):
            self._contexts.append(message)

    def conclude_turn(self) -> None:
        """End the turn with this step, if this execution ends in a success.

        Raises:
            ToolExecutionClosedError: The result is frozen already.
        """
        if self._accepts("the turn was concluded"):
            self._concluded = True

    async def run_sync(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking code in a worker thread, with the caller's context variables.

        A thread cannot be killed: cancelling the caller does not end the wait. It ends with the
        function, or when the execution is given up.
        """
        return await run_in_thread(
            partial(function, *args, **kwargs),
            label=self._name,
            call_id=self._call_id,
            signals=(self._own_controller().signal, self._caller_signal),
        )

    def _accepts(self, what: str) -> bool:
        if self._abandoned:
            return False
        if self._closed:
            raise ToolExecutionClosedError(
                f"{what} by {self._name!r} after its result was frozen; do it before returning"
            )
        return True

    @property
    def _abandoned(self) -> bool:
        return self._given_up or under_abandoned(self._caller_signal)

    def _own_controller(self) -> AbortController:
        if self._own is None:
            own = self._own = AbortController()
            _EXECUTION_SIGNALS.add(own.signal)
            self._follow(own, self._caller_signal)
        return self._own

    def _follow(self, own: AbortController, caller: AbortSignal) -> None:
        removers = [caller.observe(lambda: own.abort(caller.reason))]
        if caller in _EXECUTION_SIGNALS:
            removers.append(caller.observe_abandoned(own.abandon))
        if self._given_up:
            own.abandon()
        self._removers = tuple(removers)
        if self._closed:
            self._let_go()

    def _let_go(self) -> None:
        removers, self._removers = self._removers, ()
        for remove in removers:
            remove()


class Execution(ToolRunContext):
    """The registry's own side of the record.

    Its stages read the private state above, without the properties through which others see it:
    every call does so a dozen times.
    """

    final = False
    """The outcome skips the post stage."""
    silent = False
    """Given up: no event, no stage, no finalizer any more."""
    body_started = False
    alone = False
    """The next frame has the task in which it is awaited for itself."""

    definition: Any = None  # a ToolDefinition, whose module stands above this one
    """What the caller meant when the call began; its hooks count, whatever is registered later."""
    found: Any = None
    """`definition`, as long as nobody else has run since the call began and was not aborted."""
    guarded = False
    """Whether there were guards for the caller when the call began."""
    _made: tuple[Any, ...] | None = None  # as above
    """Results that bodies of this execution gave, checked and rendered; the last one first."""
    _target: Target | None = None

    def made_here(self, result: object) -> bool:
        """True if this very object is the outcome of a body of this execution."""
        return any(each is result for each in self._made or ())

    @property
    def target(self) -> Target:
        """Whose listeners hear of this call."""
        if self._target is None:
            self._target = Target(self._agent)
        return self._target

    @property
    def gone(self) -> bool:
        """True if nothing may happen any more on behalf of this execution."""
        # As `_abandoned`, once more: every call asks several times.
        signal = self._caller_signal
        return self.silent or self._given_up or (signal.abandoned and signal in _EXECUTION_SIGNALS)

    @property
    def own_signal(self) -> AbortSignal:
        """Follows the caller's signal; what `signal` is while no wrapper has replaced it."""
        return self._own_controller().signal

    def enter_signal(self, signal: AbortSignal) -> None:
        """Make `signal` the one the body sees."""
        _EXECUTION_SIGNALS.add(signal)
        self._signal = signal

    def settles(self, result: Any) -> bool:  # a result, whose module stands above this one
        """True if `result` is what the body gave last, and says what it has to say."""
        made = self._made
        return made is not None and made[0] is result and result.concludes_turn is self._concluded

    def take_contexts(self) -> tuple[Message, ...]:
        """The contexts deferred so far; they are handed out once."""
        taken = tuple(self._contexts)
        self._contexts.clear()
        return taken

    def take_alone(self) -> bool:
        """Whether a frame that begins now may run in the task in which it is awaited."""
        alone, self.alone = self.alone, False
        return alone

    def abandon(self) -> None:
        """Give the execution up, and all that were called with its signal."""
        self._given_up = True
        if self._own is not None:
            self._own.abandon()

    def close(self) -> None:
        """Freeze the record and let go of the caller's signal."""
        self._closed = True
        if self._removers:
            self._let_go()


def under_abandoned(signal: AbortSignal) -> bool:
    """True if `signal` belongs to an execution that was given up."""
    return signal.abandoned and signal in _EXECUTION_SIGNALS
