"""Errors of projections.

ProjectionError
├── ProjectionConflict (``PROJECTION_CONFLICT``)     the key is taken by another version
├── ProjectionFailed (``PROJECTION_FAILED``)         a unit raised; readers of its key see this
└── ProjectionRestoreError (``PROJECTION_RESTORE``)  a row does not fit; read the log from 0
"""

from dsh_brand import HarnessError


class ProjectionError(HarnessError):
    """Base of the errors of `dsh_session_projection`."""


class ProjectionConflict(ProjectionError, ValueError):  # noqa: N818  # what it is, as ServiceConflict
    """A registration that does not agree with the one in force, or has no valid version."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "PROJECTION_CONFLICT")


class ProjectionFailed(ProjectionError):  # noqa: N818  # as above
    """A unit or its view raised, and has not got past that event since.

    Attributes:
        key: The unit's key.
        seq: The event on which it fails.
    """

    def __init__(self, key: str, seq: int, cause: BaseException) -> None:
        super().__init__(
            f"projection {key!r} fails at seq {seq}: {cause}; its last good value is older, and "
            "the next read tries again",
            "PROJECTION_FAILED",
            cause,
        )
        self.key = key
        self.seq = seq


class ProjectionRestoreError(ProjectionError, ValueError):
    """A row cannot be used, and the events before it are not at hand."""

    def __init__(self, key: str, base_seq: int) -> None:
        super().__init__(
            f"projection {key!r} has no usable row for events from seq {base_seq} on: read the "
            "log from seq 0",
            "PROJECTION_RESTORE",
        )
        self.key = key
