"""The base error of every package, and the text of an error with its causes.

HarnessError
└── NotJsonError (``NOT_JSON``, in `json`)
"""

from collections.abc import Iterator
from typing import Final

_UNRENDERABLE: Final = "<unrenderable value>"
_CIRCULAR: Final = "<circular cause>"


class HarnessError(Exception):
    """Base of all errors of the harness.

    Attributes:
        message: What was wrong, with which value, and what to do next.
        code: Stable word that policies look at; the message is for people only.
    """

    def __init__(self, message: str, code: str, cause: BaseException | None = None) -> None:
        """Args: see the class; `cause` becomes `__cause__`."""
        super().__init__(message)
        self.message = message
        self.code = code
        if cause is not None:
            self.__cause__ = cause


def error_chain(value: object) -> str:
    """Render an error with its explicit causes, for diagnostics.

    Causes (``__cause__`` only) are joined by ``: ``, the members of a group stand in brackets.
    Never raises: a value that fails while it is rendered shows a fixed word in its place, and so
    does a cycle.
    """
    return _render(value, ())


def _render(value: object, above: tuple[int, ...]) -> str:
    if id(value) in above:
        return _CIRCULAR
    try:
        return ": ".join(_parts(value, (*above, id(value))))
    except Exception:  # noqa: BLE001  # foreign code renders itself here; only this node is lost
        return _UNRENDERABLE


def _parts(value: object, above: tuple[int, ...]) -> Iterator[str]:
    if not isinstance(value, BaseException):
        message = getattr(value, "message", None)
        yield message if isinstance(message, str) else str(value)
        return
    own = _own_text(value)
    if isinstance(value, BaseExceptionGroup):
        members = "; ".join(_render(member, above) for member in value.exceptions)
        own = f"{own} [{members}]"
    yield own
    if value.__cause__ is not None:
        cause = _render(value.__cause__, above)
        if cause != own:
            yield cause


def _own_text(error: BaseException) -> str:
    text = error.message if isinstance(error, BaseExceptionGroup) else str(error)
    return text or type(error).__name__
