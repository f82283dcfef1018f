"""Append-only session log: events, surface, derived history and recovery.

`ctx.sessions` is a `SessionStore`; a `Session` works without it, too.
"""

from dsh_brand import freeze_json as snapshot_json_value
from dsh_brand import is_json as is_json_value
from dsh_session.closers import (
    TOOL_NOT_STARTED as TOOL_NOT_STARTED,
)
from dsh_session.closers import (
    TOOL_OUTCOME_UNKNOWN as TOOL_OUTCOME_UNKNOWN,
)
from dsh_session.closers import (
    RecoveredResult as RecoveredResult,
)
from dsh_session.closers import (
    ToolCallRecovery as ToolCallRecovery,
)
from dsh_session.closers import (
    build_fork_seed as build_fork_seed,
)
from dsh_session.closers import (
    interrupted_turn_closers as interrupted_turn_closers,
)
from dsh_session.codec import (
    data_from_json as data_from_json,
)
from dsh_session.codec import (
    data_to_json as data_to_json,
)
from dsh_session.codec import (
    decode_event as decode_event,
)
from dsh_session.codec import (
    decode_stored_event as decode_stored_event,
)
from dsh_session.codec import (
    encode_event as encode_event,
)
from dsh_session.codec import (
    event_from_json as event_from_json,
)
from dsh_session.codec import (
    event_to_json as event_to_json,
)
from dsh_session.errors import (
    FormatVersionError as FormatVersionError,
)
from dsh_session.errors import (
    InvalidEventError as InvalidEventError,
)
from dsh_session.errors import (
    InvalidHeaderError as InvalidHeaderError,
)
from dsh_session.errors import (
    InvalidLogError as InvalidLogError,
)
from dsh_session.errors import (
    ReentrantAppendError as ReentrantAppendError,
)
from dsh_session.errors import (
    SessionError as SessionError,
)
from dsh_session.errors import (
    SessionForkError as SessionForkError,
)
from dsh_session.errors import (
    SessionStateError as SessionStateError,
)
from dsh_session.errors import (
    SurfaceError as SurfaceError,
)
from dsh_session.errors import (
    UnsupportedEventError as UnsupportedEventError,
)
from dsh_session.event_log import EventLog as EventLog
from dsh_session.events import (
    AssistantAttempt as AssistantAttempt,
)
from dsh_session.events import (
    AssistantMessageEvent as AssistantMessageEvent,
)
from dsh_session.events import (
    DeveloperMessageEvent as DeveloperMessageEvent,
)
from dsh_session.events import (
    EndSeed as EndSeed,
)
from dsh_session.events import (
    EventData as EventData,
)
from dsh_session.events import (
    InboxSpliced as InboxSpliced,
)
from dsh_session.events import (
    ModelSelectionEvent as ModelSelectionEvent,
)
from dsh_session.events import (
    RawData as RawData,
)
from dsh_session.events import (
    ReplaceOp as ReplaceOp,
)
from dsh_session.events import (
    RequestContext as RequestContext,
)
from dsh_session.events import (
    RequestHeader as RequestHeader,
)
from dsh_session.events import (
    RequestHeaderEvent as RequestHeaderEvent,
)
from dsh_session.events import (
    SessionEvent as SessionEvent,
)
from dsh_session.events import (
    SessionEventData as SessionEventData,
)
from dsh_session.events import (
    StepEnd as StepEnd,
)
from dsh_session.events import (
    StepStart as StepStart,
)
from dsh_session.events import (
    SurfaceEventData as SurfaceEventData,
)
from dsh_session.events import (
    SurfaceOp as SurfaceOp,
)
from dsh_session.events import (
    SystemMessageEvent as SystemMessageEvent,
)
from dsh_session.events import (
    TodoItem as TodoItem,
)
from dsh_session.events import (
    TodoWrite as TodoWrite,
)
from dsh_session.events import (
    ToolCallEvent as ToolCallEvent,
)
from dsh_session.events import (
    ToolErrorInfo as ToolErrorInfo,
)
from dsh_session.events import (
    ToolResultEvent as ToolResultEvent,
)
from dsh_session.events import (
    TurnEnd as TurnEnd,
)
from dsh_session.events import (
    TurnStart as TurnStart,
)
from dsh_session.events import (
    UserMessageEvent as UserMessageEvent,
)
from dsh_session.events import (
    is_append_surface_event as is_append_surface_event,
)
from dsh_session.events import (
    is_replacement_surface_event as is_replacement_surface_event,
)
from dsh_session.events import (
    is_surface_eligible_type as is_surface_eligible_type,
)
from dsh_session.events import (
    is_surface_event as is_surface_event,
)
from dsh_session.header import (
    SESSION_FORMAT_VERSION as SESSION_FORMAT_VERSION,
)
from dsh_session.header import (
    SessionHeader as SessionHeader,
)
from dsh_session.header import (
    SessionId as SessionId,
)
from dsh_session.header import (
    header_from_json as header_from_json,
)
from dsh_session.header import (
    header_to_json as header_to_json,
)
from dsh_session.headers import canonical_header as canonical_header
from dsh_session.headers import fold_request_header as fold_request_header
from dsh_session.headers import header_equals as header_equals
from dsh_session.lifecycle import (
    SessionCreated,
    SessionDisposed,
    SessionEventAppended,
    SessionFlush,
)
from dsh_session.log_rules import LogRules as LogRules
from dsh_session.log_rules import check_log as check_log
from dsh_session.log_rules import check_turns as check_turns
from dsh_session.log_rules import inherited_count_of as inherited_count_of
from dsh_session.messages import derive_event_message as derive_event_message
from dsh_session.reasons import (
    Aborted as Aborted,
)
from dsh_session.reasons import (
    Blocked as Blocked,
)
from dsh_session.reasons import (
    CancelCause as CancelCause,
)
from dsh_session.reasons import (
    Completed as Completed,
)
from dsh_session.reasons import (
    DisposedCancel as DisposedCancel,
)
from dsh_session.reasons import (
    ErrorEnd as ErrorEnd,
)
from dsh_session.reasons import (
    Forked as Forked,
)
from dsh_session.reasons import (
    HookCancel as HookCancel,
)
from dsh_session.reasons import (
    Interrupted as Interrupted,
)
from dsh_session.reasons import (
    LegacyCancel as LegacyCancel,
)
from dsh_session.reasons import (
    MaxTokens as MaxTokens,
)
from dsh_session.reasons import (
    OpaqueCancel as OpaqueCancel,
)
from dsh_session.reasons import (
    OpaqueEnd as OpaqueEnd,
)
from dsh_session.reasons import (
    ParentCancel as ParentCancel,
)
from dsh_session.reasons import (
    TurnEndReason as TurnEndReason,
)
from dsh_session.reasons import (
    UserCancel as UserCancel,
)
from dsh_session.reasons import (
    register_turn_end_reason as register_turn_end_reason,
)
from dsh_session.seqs import decode_seq_ranges as decode_seq_ranges
from dsh_session.seqs import encode_seq_ranges as encode_seq_ranges
from dsh_session.session import Session as Session
from dsh_session.session import adopt_session_event as adopt_session_event
from dsh_session.session import snapshot_session_event as snapshot_session_event
from dsh_session.store import RestoredLog, SessionConfig, SessionMeta, SessionStore
from dsh_session.surface import (
    SurfaceFold as SurfaceFold,
)
from dsh_session.surface import (
    SurfaceManager as SurfaceManager,
)
from dsh_session.surface import (
    SurfaceReplacement as SurfaceReplacement,
)
from dsh_session.surface import (
    fold_surface as fold_surface,
)
from dsh_session.vocabulary import (
    KNOWN_SESSION_EVENT_TYPES as KNOWN_SESSION_EVENT_TYPES,
)
from dsh_session.vocabulary import (
    MESSAGE_PROJECTION_EVENT_TYPES as MESSAGE_PROJECTION_EVENT_TYPES,
)
from dsh_session.vocabulary import (
    is_known_event_type as is_known_event_type,
)
from dsh_session.vocabulary import (
    register_session_event as register_session_event,
)

__all__ = [
    "KNOWN_SESSION_EVENT_TYPES",
    "MESSAGE_PROJECTION_EVENT_TYPES",
    "SESSION_FORMAT_VERSION",
    "TOOL_NOT_STARTED",
    "TOOL_OUTCOME_UNKNOWN",
    "Aborted",
    "AssistantAttempt",
    "AssistantMessageEvent",
    "Blocked",
    "CancelCause",
    "Completed",
    "DeveloperMessageEvent",
    "DisposedCancel",
    "EndSeed",
    "ErrorEnd",
    "EventData",
    "EventLog",
    "Forked",
    "FormatVersionError",
    "HookCancel",
    "InboxSpliced",
    "Interrupted",
    "InvalidEventError",
    "InvalidHeaderError",
    "InvalidLogError",
    "LegacyCancel",
    "LogRules",
    "MaxTokens",
    "ModelSelectionEvent",
    "OpaqueCancel",
    "OpaqueEnd",
    "ParentCancel",
    "RawData",
    "RecoveredResult",
    "ReentrantAppendError",
    "ReplaceOp",
    "RequestContext",
    "RequestHeader",
    "RequestHeaderEvent",
    "RestoredLog",
    "Session",
    "SessionConfig",
    "SessionCreated",
    "SessionDisposed",
    "SessionError",
    "SessionEvent",
    "SessionEventAppended",
    "SessionEventData",
    "SessionFlush",
    "SessionForkError",
    "SessionHeader",
    "SessionId",
    "SessionMeta",
    "SessionStateError",
    "SessionStore",
    "StepEnd",
    "StepStart",
    "SurfaceError",
    "SurfaceEventData",
    "SurfaceFold",
    "SurfaceManager",
    "SurfaceOp",
    "SurfaceReplacement",
    "SystemMessageEvent",
    "TodoItem",
    "TodoWrite",
    "ToolCallEvent",
    "ToolCallRecovery",
    "ToolErrorInfo",
    "ToolResultEvent",
    "TurnEnd",
    "TurnEndReason",
    "TurnStart",
    "UnsupportedEventError",
    "UserCancel",
    "UserMessageEvent",
    "adopt_session_event",
    "build_fork_seed",
    "canonical_header",
    "check_log",
    "check_turns",
    "data_from_json",
    "data_to_json",
    "decode_event",
    "decode_seq_ranges",
    "decode_stored_event",
    "derive_event_message",
    "encode_event",
    "encode_seq_ranges",
    "event_from_json",
    "event_to_json",
    "fold_request_header",
    "fold_surface",
    "header_equals",
    "header_from_json",
    "header_to_json",
    "inherited_count_of",
    "interrupted_turn_closers",
    "is_append_surface_event",
    "is_json_value",
    "is_known_event_type",
    "is_replacement_surface_event",
    "is_surface_eligible_type",
    "is_surface_event",
    "register_session_event",
    "register_turn_end_reason",
    "snapshot_json_value",
    "snapshot_session_event",
]
