"""Errors of the file layer.

HarnessError
└── FsError        `code` says what happened, `path` where
    └── SearchError
"""

from typing import Literal, TypeAlias

from dsh_brand import HarnessError

FsCode: TypeAlias = Literal[
    "FS_NOT_FOUND",
    "FS_NOT_DIRECTORY",
    "FS_NOT_TEXT",
    "FS_NOT_REGULAR_FILE",
    "FS_TOO_LARGE",
    "FS_PERMISSION_DENIED",
    "FS_SANDBOX_DENIED",
    "FS_IO_ERROR",
    "FS_STALE_VERSION",
    "FS_NOT_OBSERVED",
    "FS_AMBIGUOUS_EDIT",
    "FS_EDIT_NOT_FOUND",
    "FS_ABORTED",
]

SearchCode: TypeAlias = Literal[
    "SEARCH_INVALID_PATTERN", "SEARCH_FAILED", "SEARCH_RAW_OUTPUT_OVERFLOW", "SEARCH_ABORTED"
]


class FsError(HarnessError):
    """A file operation did not happen.

    Attributes:
        path: As it was asked for; empty where no file is concerned.
    """

    def __init__(
        self,
        message: str,
        code: FsCode | SearchCode,
        path: str = "",
        cause: BaseException | None = None,
    ) -> None:
        super().__init__(message, code, cause)
        self.path = path


class SearchError(FsError):
    """A search did not happen."""


def os_failure(error: OSError, path: str) -> FsError:
    """The error that stands for an operating system error."""
    match error:
        case FileNotFoundError():
            return FsError(f"{path} does not exist", "FS_NOT_FOUND", path, error)
        case NotADirectoryError():
            return FsError(
                f"a parent of {path} is a file, not a directory", "FS_NOT_FOUND", path, error
            )
        case IsADirectoryError():
            return FsError(f"{path} is a directory, not a file", "FS_NOT_REGULAR_FILE", path, error)
        case PermissionError():
            return FsError(
                f"the system denies access to {path}", "FS_PERMISSION_DENIED", path, error
            )
        case _:
            reason = error.strerror or type(error).__name__
            return FsError(f"{path} cannot be used: {reason}", "FS_IO_ERROR", path, error)
