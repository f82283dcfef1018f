"""Errors of this package.

HarnessError
└── LocalModelError
├── ModelNotFoundError (code LOCAL_MODEL_NOT_FOUND): no model file was named or installed
└── ModelUnusableError (code LOCAL_MODEL_UNUSABLE): the file cannot be served
"""

from dsh_brand import HarnessError


class LocalModelError(HarnessError):
    """The embedded model cannot be offered."""


class ModelNotFoundError(LocalModelError):
    """No model file was named or installed."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "LOCAL_MODEL_NOT_FOUND")


class ModelUnusableError(LocalModelError):
    """The model file exists, but llama.cpp does not serve it."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        super().__init__(message, "LOCAL_MODEL_UNUSABLE", cause)
