"""Errors of the persistence seam. Upstream: packages/session/session-persistence.

::

    SessionPersistenceError
    ├── SessionAccessError
    │   ├── SessionReadOnlyError             open the session for "write"
    │   ├── SessionHandleClosedError         open a new handle
    │   └── SessionOwnershipLostError        close, then open for "write" again
    ├── SessionAlreadyExistsError            choose another id, or open the session
    ├── SessionAlreadyOwnedError             wait for the other writer, or open for "read"
    ├── SessionPersistenceNotFoundError      the id is unknown to this store
    ├── SessionFormatUnsupportedError        intact, but not for this build
    ├── SessionPersistenceCorruptionError    the stored bytes are no valid log
    ├── SessionBatchRefusedError             the batch does not continue the log
    └── SessionStorageError                  the disk or the folder refused
"""

from dsh_brand import HarnessError


class SessionPersistenceError(HarnessError):
    """Base of everything the seam and its stores raise on purpose."""


class SessionAccessError(SessionPersistenceError):
    """The handle may not do this; what is stored is unharmed."""


class SessionReadOnlyError(SessionAccessError):
    """A mutation was asked of a handle opened for reading."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"session {session_id!r} is open for reading only: open it with access 'write'",
            "SESSION_READ_ONLY",
        )
        self.session_id = session_id


class SessionHandleClosedError(SessionAccessError):
    """The handle was closed, by its holder or with its store."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"the handle of session {session_id!r} is closed: open a new one",
            "SESSION_HANDLE_CLOSED",
        )
        self.session_id = session_id


class SessionOwnershipLostError(SessionAccessError):
    """A write handle is no longer the only writer; nothing was written."""

    def __init__(self, session_id: str, reason: str) -> None:
        super().__init__(
            f"this handle no longer owns session {session_id!r}: {reason}; "
            "close it and open the session for 'write' again",
            "SESSION_OWNERSHIP_LOST",
        )
        self.session_id = session_id


class SessionAlreadyExistsError(SessionPersistenceError):
    """The id of a new session is taken."""

    def __init__(self, session_id: str, location: str | None = None) -> None:
        where = f" at {location}" if location else ""
        super().__init__(
            f"session {session_id!r} already exists{where}: choose another id, or open it",
            "SESSION_ALREADY_EXISTS",
        )
        self.session_id = session_id
        self.location = location


class SessionAlreadyOwnedError(SessionPersistenceError):
    """Another handle, here or in another process, writes this session."""

    def __init__(self, session_id: str, location: str | None = None) -> None:
        where = f" (lock: {location})" if location else ""
        super().__init__(
            f"session {session_id!r} is open for writing elsewhere{where}: "
            "close it there first, or open it with access 'read'",
            "SESSION_ALREADY_OWNED",
        )
        self.session_id = session_id
        self.location = location


class SessionPersistenceNotFoundError(SessionPersistenceError):
    """The store holds no session of this id."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"no session {session_id!r} in this store: list() shows what it holds",
            "SESSION_NOT_FOUND",
        )
        self.session_id = session_id


class SessionFormatUnsupportedError(SessionPersistenceError):
    """The log is intact, but this build cannot use it; it is never written to.

    `location` says where it lies: a path, or what the store has instead.
    """

    def __init__(
        self, message: str, location: str | None = None, *, cause: BaseException | None = None
    ) -> None:
        text = message if location is None else f"{message} ({location})"
        super().__init__(text, "SESSION_FORMAT_UNSUPPORTED", cause)
        self.location = location


class SessionPersistenceCorruptionError(SessionPersistenceError):
    """Stored bytes do not form a valid log; they are left as they are.

    `location` says where, `line` which line (1 is the header), when known.
    """

    def __init__(
        self,
        message: str,
        location: str | None = None,
        *,
        line: int | None = None,
        cause: BaseException | None = None,
    ) -> None:
        place = ", line ".join(str(part) for part in (location, line) if part is not None)
        text = f"{message} ({place})" if place else message
        super().__init__(text, "SESSION_CORRUPT", cause)
        self.location = location
        self.line = line


class SessionBatchRefusedError(SessionPersistenceError, ValueError):
    """A batch does not continue the stored log; nothing of it was written."""

    def __init__(self, session_id: str, expected_seq: int, found_seq: int) -> None:
        super().__init__(
            f"session {session_id!r} continues at seq {expected_seq}, the batch has seq "
            f"{found_seq} there: append what is missing first, in order and once",
            "SESSION_BATCH_REFUSED",
        )
        self.session_id = session_id
        self.expected_seq = expected_seq
        self.found_seq = found_seq


class SessionStorageError(SessionPersistenceError):
    """The disk or the folder refused; the cause tells how."""

    def __init__(self, message: str, location: str, *, cause: BaseException | None = None) -> None:
        reason = f": {cause}" if cause is not None else ""
        super().__init__(f"{message} ({location}){reason}", "SESSION_STORAGE", cause)
        self.location = location
