"""What the loader raises.

HarnessError
└── LoaderError
    ├── RowsError        ROWS_INVALID        a row file, or a list of rows, that cannot be taken
    ├── ExpressionError  EXPRESSION_INVALID  an expression of no known form, or without a value
    ├── PluginNotFound   PLUGIN_UNKNOWN      `use` names nothing that is installed
    ├── PluginRefused    PLUGIN_REFUSED      it names something that cannot be mounted as it stands
    ├── BootError        BOOT_FAILED         rows failed or still wait; nothing is left mounted
    ├── RowError         ROW_FAILED          one row could not be applied; the old tree goes on
    └── ReloadError      RELOAD_FAILED       changed code could not be taken; the old code goes on
"""

from collections.abc import Sequence
from typing import Literal

from dsh_brand import HarnessError, error_chain

Stage = Literal["import", "dispose", "apply", "rollback"]
"""When a row failed while a new list was applied."""


class LoaderError(HarnessError):
    """Base of the loader's errors."""


class RowsError(LoaderError):
    """A row file or a list of rows is invalid; the message names file and entry."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        """Args: what is wrong and where, and what it came from."""
        super().__init__(message, "ROWS_INVALID", cause)


class ExpressionError(LoaderError):
    """An expression cannot be evaluated."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        """Args: what is wrong and where, and what it came from."""
        super().__init__(message, "EXPRESSION_INVALID", cause)


class PluginNotFound(LoaderError):  # noqa: N818  # reads as what happened
    """A row uses a plugin that is not there."""

    def __init__(self, use: str, message: str, cause: BaseException | None = None) -> None:
        """Args: what the row uses, the whole message, and the import error if there was one."""
        super().__init__(message, "PLUGIN_UNKNOWN", cause)
        self.use = use


class PluginRefused(LoaderError):  # noqa: N818  # reads as what happened
    """A row uses something that would lose what its module declares for it."""

    def __init__(self, use: str, message: str) -> None:
        """Args: what the row uses, and the whole message."""
        super().__init__(message, "PLUGIN_REFUSED")
        self.use = use


class BootError(LoaderError):
    """Rows failed or still wait; everything that was mounted has been disposed.

    Attributes:
        failed: Row id and original exception, traceback included.
        waiting: Row id and the service keys that are missing.
    """

    def __init__(
        self,
        failed: Sequence[tuple[str, Exception]],
        waiting: Sequence[tuple[str, Sequence[str]]],
    ) -> None:
        """Args: see the class."""
        lines = [f"row {row!r} failed: {error_chain(error)}" for row, error in failed]
        lines += [f"row {row!r} waits for {', '.join(keys)}" for row, keys in waiting]
        cause = ExceptionGroup("rows failed", [error for _, error in failed]) if failed else None
        super().__init__("boot failed: " + "; ".join(lines), "BOOT_FAILED", cause)
        self.failed = list(failed)
        self.waiting = [(row, list(keys)) for row, keys in waiting]


class RowError(LoaderError):
    """One row could not be applied; the tree is as it was before.

    Attributes:
        row: The id of the row.
        stage: `import`, `dispose`, `apply` or `rollback`.
    """

    def __init__(self, row: str, stage: Stage, cause: Exception) -> None:
        """Args: see the class, and the original exception."""
        super().__init__(
            f"row {row!r} failed at {stage}: {error_chain(cause)}", "ROW_FAILED", cause
        )
        self.row = row
        self.stage = stage


class ReloadError(LoaderError):
    """Changed code could not be taken over; the old code goes on."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        """Args: what failed, and the original exception."""
        super().__init__(message, "RELOAD_FAILED", cause)
