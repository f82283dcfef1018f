"""Plugin kernel after Cordis: contexts, fibers, effects, services, typed events and scopes."""

from dsh_cordis.errors import (
    ConfigError,
    CordisError,
    DeadlockError,
    InactiveError,
    NotEnteredError,
    ScopeError,
    ServiceConflict,
    ServiceUnavailable,
)
from dsh_cordis.events import (
    Bail,
    Emit,
    Event,
    EventType,
    Next,
    Parallel,
    Serial,
    SyncWaterfall,
    Waterfall,
)

__all__ = [
    "Bail",
    "ConfigError",
    "CordisError",
    "DeadlockError",
    "Emit",
    "Event",
    "EventType",
    "InactiveError",
    "Next",
    "NotEnteredError",
    "Parallel",
    "ScopeError",
    "Serial",
    "ServiceConflict",
    "ServiceUnavailable",
    "SyncWaterfall",
    "Waterfall",
]
