"""Pure folds of the log that the loop keeps live: inbox, model selection, turn boundary."""

import msgspec

from dsh_brand import JsonValue, Wire, to_json
from dsh_llm import LlmCallConfig, Message
from dsh_session import (
    InboxSpliced,
    ModelSelectionEvent,
    RequestHeader,
    RequestHeaderEvent,
    SessionEvent,
    SessionHeader,
    StepEnd,
    StepStart,
    TurnEnd,
    TurnStart,
)
from dsh_session_projection import ProjectionDefinition

from .errors import InboxError
from .types import ModelSelection


class InboxState(Wire, frozen=True, kw_only=True):
    """Both lists of pending messages."""

    next_turn: tuple[Message, ...] = msgspec.field(default=(), name="next-turn")
    next_step: tuple[Message, ...] = msgspec.field(default=(), name="next-step")

    def list_of(self, target: str) -> tuple[Message, ...]:
        """The list that a splice names."""
        return self.next_turn if target == "next-turn" else self.next_step


class SelectionState(Wire, frozen=True, kw_only=True):
    """The model last requested, and a choice that no request has used yet."""

    last_used: ModelSelection | None = None
    pending: ModelSelection | None = None


class TurnBoundary(Wire, frozen=True, kw_only=True):
    """Where the log stands between turns and steps."""

    turn: int = 0
    """Number of the last recorded turn."""
    step: int = 0
    """Number of the last recorded step of that turn."""
    turn_start_seq: int | None = None
    """Of the open turn; `None` when none is open."""
    step_start_seq: int | None = None
    """Of the last `step/start`."""
    step_boundary_seq: int | None = None
    """Of the last `step/start` or `step/end`."""

    @property
    def turn_open(self) -> bool:
        """Whether a turn has no `turn/end` yet."""
        return self.turn_start_seq is not None

    @property
    def step_open(self) -> bool:
        """Whether a step has no `step/end` yet."""
        return self.turn_open and self.step > 0 and self.step_start_seq == self.step_boundary_seq


def apply_splice(state: InboxState, splice: InboxSpliced, seq: int) -> InboxState:
    """Fold one inbox operation.

    Raises:
        InboxError: Its coordinates lie outside the list, or a message id would be pending twice.
    """
    current = state.list_of(splice.target)
    start, removed = splice.start, splice.removed_count or 0
    if start < 0 or removed < 0 or start + removed > len(current):
        raise InboxError(
            f"the inbox splice at seq {seq} removes {removed} at {start} "
            f"of {len(current)} {splice.target} messages; the log is damaged",
            "INBOX_INVALID_FOLD",
        )
    changed = (*current[:start], *splice.inserted, *current[start + removed :])
    if splice.target == "next-turn":
        result = InboxState(next_turn=changed, next_step=state.next_step)
    else:
        result = InboxState(next_turn=state.next_turn, next_step=changed)
    if splice.inserted:
        _refuse_duplicates(result, seq)
    return result


def _refuse_duplicates(state: InboxState, seq: int) -> None:
    if len(state.next_turn) + len(state.next_step) < 2:
        return
    ids = [message.id for message in (*state.next_turn, *state.next_step)]
    if len(set(ids)) != len(ids):
        twice = next(id_ for id_ in ids if ids.count(id_) > 1)
        raise InboxError(
            f"message {twice!r} is pending twice after seq {seq}; the log is damaged",
            "INBOX_INVALID_FOLD",
        )


def _apply_inbox(state: InboxState, event: SessionEvent) -> InboxState:
    if isinstance(event.data, InboxSpliced):
        return apply_splice(state, event.data, event.seq)
    if event.type == InboxSpliced.type:
        raise InboxError(
            f"the inbox splice at seq {event.seq} cannot be read; the log is damaged",
            "INBOX_INVALID_FOLD",
        )
    return state


def _view_inbox(state: InboxState) -> JsonValue:
    return {
        "next-turn": [to_json(message) for message in state.next_turn],
        "next-step": [to_json(message) for message in state.next_step],
    }


def choice_of(header: RequestHeader) -> ModelSelection:
    """The choice a request header records; an effort that the adapter supplied is none."""
    config: LlmCallConfig = header.config
    marks = header.adapter_defaults
    defaulted = marks is not None and marks.reasoning_effort is True
    return ModelSelection(
        provider=config.provider,
        model=config.model,
        reasoning_effort=None if defaulted else config.reasoning_effort,
    )


def _apply_selection(state: SelectionState, event: SessionEvent) -> SelectionState:
    data = event.data
    if isinstance(data, ModelSelectionEvent):
        pending = ModelSelection(
            provider=data.provider, model=data.model, reasoning_effort=data.reasoning_effort
        )
        if pending == state.pending:
            return state
        return SelectionState(last_used=state.last_used, pending=pending)
    if isinstance(data, RequestHeaderEvent):
        used = choice_of(data.header)
        still = None if used == state.pending else state.pending
        if used == state.last_used and still is state.pending:
            return state
        return SelectionState(last_used=used, pending=still)
    return state


def _selection_json(choice: ModelSelection | None) -> JsonValue:
    if choice is None:
        return None
    row: dict[str, JsonValue] = {"provider": choice.provider, "model": choice.model}
    if choice.reasoning_effort is not None:
        row["reasoningEffort"] = choice.reasoning_effort
    return row


def _view_selection(state: SelectionState) -> JsonValue:
    return {
        "lastUsed": _selection_json(state.last_used),
        "next": _selection_json(state.pending or state.last_used),
    }


def _apply_boundary(state: TurnBoundary, event: SessionEvent) -> TurnBoundary:
    match event.data:
        case TurnStart(turn=turn):
            return TurnBoundary(turn=turn, turn_start_seq=event.seq)
        case TurnEnd():
            return msgspec.structs.replace(state, turn_start_seq=None)
        case StepStart(step=step):
            return msgspec.structs.replace(
                state, step=step, step_start_seq=event.seq, step_boundary_seq=event.seq
            )
        case StepEnd():
            return msgspec.structs.replace(state, step_boundary_seq=event.seq)
        case _:
            return state


def _init_inbox(header: SessionHeader, inherited_event_count: int) -> InboxState:
    return InboxState()


def _init_selection(header: SessionHeader, inherited_event_count: int) -> SelectionState:
    return SelectionState()


def _init_boundary(header: SessionHeader, inherited_event_count: int) -> TurnBoundary:
    return TurnBoundary()


inbox_unit = ProjectionDefinition(
    key="inbox",
    state_version=1,
    init=_init_inbox,
    apply=_apply_inbox,
    event_types=frozenset({InboxSpliced.type}),
    view=_view_inbox,
    state_type=InboxState,
)
"""Pending input; its view is `{"next-turn": [...], "next-step": [...]}`."""

model_selection_unit = ProjectionDefinition(
    key="modelSelection",
    state_version=2,
    init=_init_selection,
    apply=_apply_selection,
    event_types=frozenset({ModelSelectionEvent.type, RequestHeaderEvent.type}),
    view=_view_selection,
    state_type=SelectionState,
)
"""The model in use; its view is `{"lastUsed": ..., "next": ...}`."""

turn_boundary_unit = ProjectionDefinition(
    key="turnBoundary",
    state_version=1,
    init=_init_boundary,
    apply=_apply_boundary,
    event_types=frozenset({TurnStart.type, TurnEnd.type, StepStart.type, StepEnd.type}),
    state_type=TurnBoundary,
)
"""Turn and step numbering; host-only."""
