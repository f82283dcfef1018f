"""Errors of sessions.

SessionError
├── InvalidHeaderError (``SESSION_HEADER_INVALID``)
├── FormatVersionError (``SESSION_FORMAT_UNSUPPORTED``)      another version of the session format
├── InvalidEventError (``SESSION_EVENT_INVALID``)            one event breaks a rule
│   └── SurfaceError (``SESSION_SURFACE_INVALID``)           it breaks a rule of the surface
├── UnsupportedEventError (``SESSION_EVENT_UNSUPPORTED``)    intact, but not for this build
├── InvalidLogError (``SESSION_LOG_INVALID``)                the events do not fit together
├── ProjectionUnavailableError (``SESSION_PROJECTION_UNAVAILABLE``)
├── ReentrantAppendError (``SESSION_REENTRY``)
├── SessionStateError (codes in the class)                   misuse of the store
└── SessionForkError (codes in the class)
"""

from typing import Literal

from dsh_brand import HarnessError


class SessionError(HarnessError):
    """Base of the errors of `dsh_session`."""


class InvalidHeaderError(SessionError, ValueError):
    """A session header that is none of this format."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message, "SESSION_HEADER_INVALID", cause)


class FormatVersionError(SessionError):
    """A header of another session format.

    Attributes:
        version: The version found.
        newer: True if a newer build wrote it; false if it is an old log that must be imported.
    """

    def __init__(self, version: int, native: int) -> None:
        self.version = version
        self.newer = version > native
        advice = (
            "a newer build wrote it: upgrade to read it"
            if self.newer
            else "it is an older format: import it first"
        )
        super().__init__(
            f"session format {version} is not format {native}: {advice}",
            "SESSION_FORMAT_UNSUPPORTED",
        )


class InvalidEventError(SessionError, ValueError):
    """An event that breaks a rule of the log.

    Attributes:
        seq: Its seq, or its index in the list it came from; `None` before it has one.
    """

    def __init__(
        self,
        reason: str,
        *,
        event_type: object = None,
        seq: int | None = None,
        code: str = "SESSION_EVENT_INVALID",
        cause: BaseException | None = None,
    ) -> None:
        name = "event" if event_type is None else f"event {event_type!r}"
        place = "" if seq is None else f" at seq {seq}"
        super().__init__(f"{name}{place}: {reason}", code, cause)
        self.reason = reason
        self.event_type = event_type
        self.seq = seq


class SurfaceError(InvalidEventError):
    """An event that the surface cannot take."""

    def __init__(self, reason: str, *, event_type: object = None, seq: int | None = None) -> None:
        super().__init__(reason, event_type=event_type, seq=seq, code="SESSION_SURFACE_INVALID")


class UnsupportedEventError(SessionError):
    """An intact stored event that this build does not know and may not skip.

    Attributes:
        event_type: Its type.
        seq: Its seq.
    """

    def __init__(self, event_type: str, seq: int, reason: str) -> None:
        super().__init__(
            f"event {event_type!r} at seq {seq}: {reason}", "SESSION_EVENT_UNSUPPORTED"
        )
        self.event_type = event_type
        self.seq = seq


class InvalidLogError(SessionError, ValueError):
    """Events that are sound one by one and do not make a session together."""

    def __init__(self, reason: str, *, seq: int | None = None) -> None:
        place = "" if seq is None else f" at seq {seq}"
        super().__init__(f"session log{place}: {reason}", "SESSION_LOG_INVALID")
        self.seq = seq


class ProjectionUnavailableError(SessionError):
    """Messages of the history were changed by a projection that is no longer registered.

    Attributes:
        event_type: The type of the events that changed them.
    """

    def __init__(self, event_type: str) -> None:
        super().__init__(
            f"the history was changed by events {event_type!r}, whose message projection is gone: "
            "mount the plugin that owns it again",
            "SESSION_PROJECTION_UNAVAILABLE",
        )
        self.event_type = event_type


class ReentrantAppendError(SessionError):
    """An append to a session from inside an append to the same session."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"session {session_id!r} is just appending: a listener of 'session/event' may append "
            "to other sessions only; do it after the append returned",
            "SESSION_REENTRY",
        )


class SessionStateError(SessionError):
    """A call that the session's place in its store does not allow.

    Codes: ``SESSION_ALREADY_EXISTS``, ``SESSION_ATTACHED``, ``SESSION_NOT_LIVE``,
    ``SESSION_ANNOUNCED``.
    """

    def __init__(
        self,
        message: str,
        code: Literal[
            "SESSION_ALREADY_EXISTS", "SESSION_ATTACHED", "SESSION_NOT_LIVE", "SESSION_ANNOUNCED"
        ],
    ) -> None:
        super().__init__(message, code)


class SessionForkError(SessionError):
    """A fork that is refused before any child exists.

    Codes: ``SESSION_ALREADY_EXISTS``, ``SESSION_NOT_FOUND``, ``SESSION_NOT_LIVE``,
    ``INVALID_BOUNDARY``.
    """

    def __init__(
        self,
        message: str,
        code: Literal[
            "SESSION_ALREADY_EXISTS", "SESSION_NOT_FOUND", "SESSION_NOT_LIVE", "INVALID_BOUNDARY"
        ],
    ) -> None:
        super().__init__(message, code)
