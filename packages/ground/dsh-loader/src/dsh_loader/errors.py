"""What the loader raises.

HarnessError
└── LoaderError
    ├── RowsError        ROWS_INVALID    a row file, or a list of rows, that cannot be taken
    ├── PluginNotFound   PLUGIN_UNKNOWN  `use` names nothing that is installed
    ├── PluginRefused    PLUGIN_REFUSED  it names something that cannot be mounted as it stands
    └── BootError        BOOT_FAILED     some rows failed or still wait; nothing is left mounted
"""

from collections.abc import Sequence

from dsh_brand import HarnessError, error_chain


class LoaderError(HarnessError):
    """Base of the loader's errors."""


class RowsError(LoaderError):
    """A row file or a list of rows is invalid; the message names file and entry."""

    def __init__(self, message: str, cause: BaseException | None = None) -> None:
        """Args: what is wrong and where, and what it came from."""
        super().__init__(message, "ROWS_INVALID", cause)


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
