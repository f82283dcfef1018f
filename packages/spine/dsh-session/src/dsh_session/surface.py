"""The surface: which events the model sees, in which order.

Upstream: packages/session/session/src/surface.ts.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, overload

import msgspec
from typing_extensions import override

from dsh_brand import JsonValue, json_equal, to_json
from dsh_llm import Message
from dsh_session.errors import SurfaceError
from dsh_session.events import (
    SURFACE_EVENT_DATA,
    AssistantMessageEvent,
    DeveloperMessageEvent,
    ReplaceOp,
    RequestHeaderEvent,
    SessionEvent,
    SystemMessageEvent,
    ToolResultEvent,
    is_surface_event,
)
from dsh_session.message_projections import (
    MessageProjections,
    ProjectionContext,
    SessionMessageProjection,
    project_messages,
)
from dsh_session.messages import derive_event_message
from dsh_session.tool_changes import additions, check_addition_binding

_PLAIN_APPENDS: Final = frozenset(SURFACE_EVENT_DATA) - {DeveloperMessageEvent}
"""Payloads that need no look at earlier events when they are appended."""
_NONE: Final[frozenset[str]] = frozenset()


class SurfaceNodes(Sequence[int]):
    """Live, read-only view of the surface: seqs in the order the model sees them."""

    __slots__ = ("_seqs",)

    def __init__(self, seqs: list[int]) -> None:
        self._seqs = seqs

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[int, ...]: ...
    @override
    def __getitem__(self, index: int | slice) -> int | tuple[int, ...]:
        return tuple(self._seqs[index]) if isinstance(index, slice) else self._seqs[index]

    @override
    def __len__(self) -> int:
        return len(self._seqs)

    @override
    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._seqs))

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(other) == self._seqs

    __hash__ = None  # type: ignore[assignment]  # a live view

    @override
    def __repr__(self) -> str:
        return f"SurfaceNodes({self._seqs})"


class SurfaceReplacement(msgspec.Struct, frozen=True):
    """One committed replacement."""

    seq: int
    start: int
    end: int
    shadowed_seqs: tuple[int, ...]
    """What it took away, in surface order."""


class SurfaceChange(msgspec.Struct, frozen=True):
    """A change that was checked and not made yet: positions `start` to `stop` give way to `seq`.

    Or, with `projected`, that messages of nodes change, and the nodes stay.
    """

    seq: int
    start: int
    stop: int
    replaces: bool
    projected: Mapping[int, Message] | None = None
    event_type: str = ""


class SurfaceManager:
    """Keeps the surface of one log, event by event.

    Args:
        lookup: Gives an earlier event by its seq.
        base_seq: Seq of the first event that will come; a replacement that reaches before it fails.
        projections: What events that change messages do; without one such an event is refused.
    """

    def __init__(
        self,
        lookup: Callable[[int], SessionEvent],
        base_seq: int = 0,
        projections: MessageProjections | None = None,
    ) -> None:
        self._lookup = lookup
        self._base_seq = base_seq
        self.projections = MessageProjections() if projections is None else projections
        """The message projections that are registered now."""
        self._projected: dict[int, Message] = {}
        self._used = _NONE
        self._nodes: list[int] = []
        self.nodes = SurfaceNodes(self._nodes)
        """Current seqs in model order."""
        self.replace_generation = 0
        """Counts committed replacements."""
        self.content_generation = 0
        """Counts what changed messages that were derived before."""

    def check(self, event: SessionEvent) -> SurfaceChange | None:
        """The change that `event` makes, without making it; `None` for a log-only event.

        Raises:
            SurfaceError: A rule of the surface is broken.
            InvalidEventError: Its message projection refuses it.
            UnsupportedEventError: It changes messages, and its projection is not registered.
        """
        if event.data.projects:
            return self._projection(event)
        if event.surface_op is None or not is_surface_event(event):
            return None
        if isinstance(event.data, DeveloperMessageEvent):
            self._check_binding(event, event.data)
        if not isinstance(event.surface_op, ReplaceOp):
            return SurfaceChange(event.seq, len(self._nodes), len(self._nodes), replaces=False)
        start, stop = self._range(event, event.surface_op)
        self._check_replacement(event, start, stop)
        return SurfaceChange(event.seq, start, stop, replaces=True)

    def commit(self, change: SurfaceChange) -> None:
        """Make a change that `check` returned for the present state."""
        if change.projected is not None:
            self._projected.update(change.projected)
            self._used |= {change.event_type}
            self.content_generation += 1
            return
        if change.replaces and self._projected:
            for seq in self._nodes[change.start : change.stop]:
                self._projected.pop(seq, None)
        self._nodes[change.start : change.stop] = [change.seq]
        if change.replaces:
            self.replace_generation += 1
            self.content_generation += 1

    def apply(self, event: SessionEvent) -> SurfaceChange | None:
        """`check` and `commit`; raises as `check`."""
        change = self.check(event)
        if change is not None:
            self.commit(change)
        return change

    def admit(self, event: SessionEvent) -> None:
        """As `apply`, for reading whole logs: a plain append, the usual case, is only noted.

        Raises:
            SurfaceError: A rule of the surface is broken; and what else `check` raises.
        """
        if event.surface_op == "append" and type(event.data) in _PLAIN_APPENDS:
            self._nodes.append(event.seq)
        elif event.surface_op is not None or event.data.projects:
            self.apply(event)

    def message(self, seq: int) -> Message | None:
        """The message of a node, as the projections left it.

        Raises:
            ProjectionUnavailableError: A projection that changed messages is no longer registered.
        """
        self.check_projections()
        return derive_event_message(self._lookup(seq), self._projected.get(seq))

    def projected_message(self, seq: int) -> Message | None:
        """What the projections made of the message of a node; `None` if they left it alone.

        Raises:
            ProjectionUnavailableError: As `message`.
        """
        self.check_projections()
        return self._projected.get(seq)

    def projected_messages(self) -> Mapping[int, Message]:
        """A live view of what projections changed, by the seq of the node; raises as `message`."""
        self.check_projections()
        return MappingProxyType(self._projected)

    def check_projections(self) -> None:
        """Raise if the messages cannot be told; see `message`."""
        if self._used:
            self.projections.check_present(self._used)

    def _projection(self, event: SessionEvent) -> SurfaceChange:
        definition = self.projections.needed(event)
        messages = {seq: self.message(seq) for seq in self._nodes if seq >= self._base_seq}
        context = ProjectionContext(
            nodes=tuple(self._nodes),
            event_at=self._lookup,
            base_seq=self._base_seq,
            messages={seq: found for seq, found in messages.items() if found is not None},
        )
        projected = project_messages(event, definition, context)
        size = len(self._nodes)
        return SurfaceChange(event.seq, size, size, False, projected, event.type)

    def _range(self, event: SessionEvent, op: ReplaceOp) -> tuple[int, int]:
        start = self._position(event, op.start_seq)
        end = start if op.end_seq == op.start_seq else self._position(event, op.end_seq)
        if start > end:
            raise _error(event, f"node {op.start_seq} stands behind node {op.end_seq}")
        return start, end + 1

    def _position(self, event: SessionEvent, seq: int) -> int:
        try:
            return self._nodes.index(seq)
        except ValueError:
            where = "lies before this window" if seq < self._base_seq else "is no surface node now"
            raise _error(event, f"seq {seq} not found: it {where}") from None

    def _check_replacement(self, event: SessionEvent, start: int, stop: int) -> None:
        shadowed = self._nodes[start:stop]
        missing = set(shadowed).difference(event.source_event_seqs or ())
        if missing:
            raise _error(event, f"it shadows {sorted(missing)} without citing them")
        if isinstance(event.data, AssistantMessageEvent):
            raise _error(event, "an assistant message can only be appended")
        rewrites_head = isinstance(event.data, SystemMessageEvent) and stop == 1
        has_head = start == 0 and isinstance(self._lookup(shadowed[0]).data, SystemMessageEvent)
        if has_head and not rewrites_head:
            raise _error(event, "the system prompt at the head gives way to one alone")
        if isinstance(event.data, ToolResultEvent):
            self._check_result(event, event.data, shadowed)

    def _check_result(
        self, event: SessionEvent, data: ToolResultEvent, shadowed: list[int]
    ) -> None:
        old = self._lookup(shadowed[0]).data
        if len(shadowed) != 1 or not isinstance(old, ToolResultEvent):
            raise _error(event, "a tool result replaces exactly one tool result")
        if not json_equal(_but_content(old), _but_content(data)):
            raise _error(event, "a replaced tool result keeps everything but its content")

    def _check_binding(self, event: SessionEvent, data: DeveloperMessageEvent) -> None:
        if data.header_seq is None:
            return
        if not 0 <= data.header_seq < event.seq:
            raise _error(event, f"headerSeq {data.header_seq} names no earlier event")
        if data.header_seq < self._base_seq:
            return
        header = self._lookup(data.header_seq).data
        if not isinstance(header, RequestHeaderEvent):
            raise _error(event, f"headerSeq {data.header_seq} names no request header")
        for block in additions(data.message):
            problem = check_addition_binding(header.header, block.tool_name)
            if problem is not None:
                raise _error(event, f"header {data.header_seq} {problem}")


class SurfaceFold(msgspec.Struct, frozen=True):
    """The surface of a whole log."""

    nodes: tuple[int, ...]
    replacements: tuple[SurfaceReplacement, ...]
    projected_messages: Mapping[int, Message] = {}
    """The messages that projections changed, by the seq of their node."""


def fold_surface(
    events: Iterable[SessionEvent], projections: Iterable[SessionMessageProjection] = ()
) -> SurfaceFold:
    """Fold a log, from seq 0 on.

    Raises:
        SurfaceError: A rule of the surface is broken.
        InvalidEventError: A message projection refuses its event.
        UnsupportedEventError: An event changes messages, and its projection is not among these.
    """
    seen: list[SessionEvent] = []
    surface = SurfaceManager(seen.__getitem__, projections=MessageProjections(projections))
    replacements: list[SurfaceReplacement] = []
    for event in events:
        before = surface.nodes[:] if isinstance(event.surface_op, ReplaceOp) else ()
        change = surface.apply(event)
        seen.append(event)
        if change is not None and change.replaces and isinstance(event.surface_op, ReplaceOp):
            op = event.surface_op
            shadowed = before[change.start : change.stop]
            replacements.append(SurfaceReplacement(event.seq, op.start_seq, op.end_seq, shadowed))
    return SurfaceFold(surface.nodes[:], tuple(replacements), dict(surface.projected_messages()))


def _but_content(data: ToolResultEvent) -> JsonValue:
    stripped = msgspec.structs.replace(
        data, message=msgspec.structs.replace(data.message, content=())
    )
    return to_json(stripped)


def _error(event: SessionEvent, reason: str) -> SurfaceError:
    return SurfaceError(reason, event_type=event.type, seq=event.seq)
