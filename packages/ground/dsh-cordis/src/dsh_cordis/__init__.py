"""Plugin kernel after Cordis: contexts, fibers, effects, services, typed events and scopes."""

from dsh_cordis._activation import FiberState
from dsh_cordis._dispatch import TaskCensus, task_census
from dsh_cordis._plugin import Plugin
from dsh_cordis.context import Context, Fiber, Target
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
    Mode,
    Next,
    Parallel,
    Serial,
    SyncWaterfall,
    Waterfall,
)
from dsh_cordis.handle import Completion, EffectInfo, Handle
from dsh_cordis.internal import (
    InternalConfig,
    InternalDispatch,
    InternalError,
    InternalPlugin,
    InternalStatus,
    InternalUpdate,
)
from dsh_cordis.scope import (
    Layer,
    Scope,
    ScopeBinding,
    ScopedTable,
    bind_scope_parent,
    create_scope,
    scope_chain_of,
    scope_of,
)
from dsh_cordis.service import Service

__all__ = [
    "Bail",
    "Completion",
    "ConfigError",
    "Context",
    "CordisError",
    "DeadlockError",
    "EffectInfo",
    "Emit",
    "Event",
    "EventType",
    "Fiber",
    "FiberState",
    "Handle",
    "InactiveError",
    "InternalConfig",
    "InternalDispatch",
    "InternalError",
    "InternalPlugin",
    "InternalStatus",
    "InternalUpdate",
    "Layer",
    "Mode",
    "Next",
    "NotEnteredError",
    "Parallel",
    "Plugin",
    "Scope",
    "ScopeBinding",
    "ScopeError",
    "ScopedTable",
    "Serial",
    "Service",
    "ServiceConflict",
    "ServiceUnavailable",
    "SyncWaterfall",
    "Target",
    "TaskCensus",
    "Waterfall",
    "bind_scope_parent",
    "create_scope",
    "scope_chain_of",
    "scope_of",
    "task_census",
]
