"""Why an old log cannot be converted.

OldFormatError
├── CannotConvertError (``SESSION_FORMAT_UNSUPPORTED``)     intact, but it has no faithful form here
└── BrokenRowError (``SESSION_CORRUPT``)                    it is no log of its own format
"""

from dsh_brand import HarnessError


class OldFormatError(HarnessError):
    """A row of an old log that the conversion stops at.

    Attributes:
        event_type: The row's type, `None` if it has none.
        seq: Its seq in the file, `None` if it has none.
        rule: What it breaks.
    """

    def __init__(self, rule: str, code: str, event_type: str | None, seq: int | None) -> None:
        place = "" if seq is None else f" at seq {seq}"
        prefix = "" if event_type is None else f"event {event_type!r}{place}: "
        super().__init__(f"{prefix}{rule}", code)
        self.event_type = event_type
        self.seq = seq
        self.rule = rule


class CannotConvertError(OldFormatError):
    """The log is sound, and nothing in the present format says the same."""

    def __init__(self, rule: str, event_type: str | None = None, seq: int | None = None) -> None:
        super().__init__(rule, "SESSION_FORMAT_UNSUPPORTED", event_type, seq)


class BrokenRowError(OldFormatError):
    """The row has no shape that its format knows, old spellings included."""

    def __init__(self, rule: str, event_type: str | None = None, seq: int | None = None) -> None:
        super().__init__(rule, "SESSION_CORRUPT", event_type, seq)
