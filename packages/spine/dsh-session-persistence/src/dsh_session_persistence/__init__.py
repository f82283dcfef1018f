"""The seam between session logs and the stores that keep them."""

from dsh_session_persistence.errors import (
    SessionAccessError,
    SessionAlreadyExistsError,
    SessionAlreadyOwnedError,
    SessionBatchRefusedError,
    SessionFormatUnsupportedError,
    SessionHandleClosedError,
    SessionOwnershipLostError,
    SessionPersistenceCorruptionError,
    SessionPersistenceError,
    SessionPersistenceNotFoundError,
    SessionReadOnlyError,
    SessionStorageError,
)
from dsh_session_persistence.handle import SessionHandle
from dsh_session_persistence.leases import Claim, Lease
from dsh_session_persistence.logs import ReadLog, WriteLog
from dsh_session_persistence.rules import StoredLogRules
from dsh_session_persistence.service import SessionPersistence
from dsh_session_persistence.types import (
    Access,
    ListingProblem,
    SessionListing,
    SessionLog,
    SessionLogStore,
    SessionPersistenceSnapshot,
)

__all__ = [
    "Access",
    "Claim",
    "Lease",
    "ListingProblem",
    "ReadLog",
    "SessionAccessError",
    "SessionAlreadyExistsError",
    "SessionAlreadyOwnedError",
    "SessionBatchRefusedError",
    "SessionFormatUnsupportedError",
    "SessionHandle",
    "SessionHandleClosedError",
    "SessionListing",
    "SessionLog",
    "SessionLogStore",
    "SessionOwnershipLostError",
    "SessionPersistence",
    "SessionPersistenceCorruptionError",
    "SessionPersistenceError",
    "SessionPersistenceNotFoundError",
    "SessionPersistenceSnapshot",
    "SessionReadOnlyError",
    "SessionStorageError",
    "StoredLogRules",
    "WriteLog",
]
