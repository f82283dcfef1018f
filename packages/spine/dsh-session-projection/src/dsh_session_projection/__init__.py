"""Values folded from session logs: registered once, kept in step, served whole."""

from dsh_session_projection.definition import (
    ProjectionDefinition,
    ProjectionRow,
    ProjectionSnapshot,
)
from dsh_session_projection.errors import (
    ProjectionConflict,
    ProjectionError,
    ProjectionFailed,
    ProjectionRestoreError,
)
from dsh_session_projection.registry import ChangeListener, SessionProjectionRegistry

__all__ = [
    "ChangeListener",
    "ProjectionConflict",
    "ProjectionDefinition",
    "ProjectionError",
    "ProjectionFailed",
    "ProjectionRestoreError",
    "ProjectionRow",
    "ProjectionSnapshot",
    "SessionProjectionRegistry",
]
