"""The names that others build on (S173)."""

import importlib

import pytest

NAMES = {
    "dsh_session": """
        Session SessionStore SessionHeader SessionEvent SessionId SESSION_FORMAT_VERSION
        KNOWN_SESSION_EVENT_TYPES MESSAGE_PROJECTION_EVENT_TYPES SessionForkError TOOL_NOT_STARTED
        TOOL_OUTCOME_UNKNOWN ToolCallRecovery interrupted_turn_closers build_fork_seed fold_surface
        SurfaceManager SessionMessageProjection derive_event_message is_surface_event
        is_append_surface_event is_replacement_surface_event is_surface_eligible_type
        canonical_header fold_request_header header_equals is_json_value snapshot_json_value
        snapshot_session_event adopt_session_event encode_seq_ranges decode_seq_ranges
        register_session_event
    """,
    "dsh_llm": """
        AssistantStreamAccumulator expand_assistant_stream assemble_assistant_stream TextChunks
        ReasoningChunks ToolCallChunks RawChunk
    """,
    "dsh_session_persistence": """
        SessionPersistence SessionHandle SessionPersistenceSnapshot SessionReadOnlyError
        SessionHandleClosedError SessionOwnershipLostError SessionAlreadyExistsError
        SessionAlreadyOwnedError SessionPersistenceNotFoundError SessionFormatUnsupportedError
        SessionPersistenceCorruptionError
    """,
    "dsh_session_persistence.testing": "PersistenceConformance",
    "dsh_session_projection": """
        SessionProjectionRegistry ProjectionDefinition ProjectionSnapshot
    """,
}


@pytest.mark.parametrize("module", NAMES)
def test_S173_the_names_of_the_contract_are_exported(module: str) -> None:
    found = importlib.import_module(module)
    names = NAMES[module].split()
    assert [name for name in names if not hasattr(found, name)] == []
    assert [name for name in names if name not in found.__all__] == []
