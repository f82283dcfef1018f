"""Failures of a model call, as facts that a log can hold.

HarnessError
├── LlmError (the codes of `dsh_llm.codes`)
└── MessageError (``INVALID_MESSAGE``, in `messages`)
"""

import math
from typing import Final

from dsh_brand import HarnessError, Wire
from dsh_llm import codes

_NO_TEXT: Final = "The failure carries no readable message."


class LlmFailure(Wire, frozen=True):
    """What is known about a failed call."""

    message: str
    code: str
    """One of `dsh_llm.codes`; the only part that policies look at."""
    status: int | None = None
    """The HTTP status."""
    provider_retry_after_ms: int | float | None = None
    """How long the provider asks to wait."""
    request_id: str | None = None
    offload_images: int | None = None
    """How many more of the oldest images must go, with `IMAGE_OFFLOAD_REQUIRED`."""


class LlmError(HarnessError):
    """A model call failed, or the model layer was used in a way that it refuses.

    Attributes:
        failure: The facts; its code is the code of the error.
    """

    def __init__(
        self,
        message: str,
        code: str,
        *,
        status: int | None = None,
        provider_retry_after_ms: float | None = None,
        request_id: str | None = None,
        offload_images: int | None = None,
        cause: BaseException | None = None,
    ) -> None:
        """Check and keep the facts.

        Raises:
            ValueError: Empty message, code or request id; a status outside 100..599; a delay that
                is not a finite number above zero.
        """
        delay = provider_retry_after_ms
        if isinstance(delay, float) and delay.is_integer():
            delay = int(delay)
        failure = LlmFailure(
            message=message,
            code=code,
            status=status,
            provider_retry_after_ms=delay,
            request_id=request_id,
            offload_images=offload_images,
        )
        problem = _problem(failure)
        if problem is not None:
            raise ValueError(f"LlmError cannot be made: {problem}")
        super().__init__(message, code, cause)
        self.failure = failure


def failure_of(error: BaseException) -> LlmFailure:
    """The facts of any error that was raised.

    Facts that an error carries count only if they are valid and agree with its code. Of an
    exception group, the first `LlmError` in depth-first order speaks, or else the first error.
    """
    error = _speaker(error)
    carried = getattr(error, "failure", None) if isinstance(error, LlmError) else None
    code = error.code if isinstance(error, HarnessError) else codes.UNKNOWN
    if isinstance(carried, LlmFailure) and carried.code == code and _problem(carried) is None:
        return carried
    if not isinstance(code, str) or not code:
        code = codes.UNKNOWN
    return LlmFailure(message=_text_of(error), code=code)


def _problem(failure: LlmFailure) -> str | None:
    """What is wrong with the facts; they may come from code that no checker has seen."""
    texts = {"message": failure.message, "code": failure.code}
    if failure.request_id is not None:
        texts["request id"] = failure.request_id
    for name, text in texts.items():
        if not isinstance(text, str) or not text:
            return f"{name} {text!r} is not a non-empty string"
    status = failure.status
    if status is not None and (type(status) is not int or not 100 <= status <= 599):
        return f"status {status!r} is not an integer in 100..599"
    delay = failure.provider_retry_after_ms
    if delay is not None and not (
        type(delay) in (int, float) and math.isfinite(delay) and delay > 0
    ):
        return f"retry delay {delay!r} is not a finite number above zero"
    return None


def _speaker(error: BaseException) -> BaseException:
    if not isinstance(error, BaseExceptionGroup):
        return error
    leaves: list[BaseException] = []
    stack: list[BaseException] = [error]
    while stack:
        item = stack.pop()
        if isinstance(item, BaseExceptionGroup):
            stack.extend(reversed(item.exceptions))
        else:
            leaves.append(item)
    return next((leaf for leaf in leaves if isinstance(leaf, LlmError)), leaves[0])


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  # foreign code renders itself here; a failure must have a text
        return _NO_TEXT
    return text or _NO_TEXT
