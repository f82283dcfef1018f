"""File service and the read, write, edit and glob tools.

The package is a plugin: `ctx.plugin(dsh_fs, {"root": ".", "confine": True})`. Its parts mount alone
too: `FsService` (`ctx.fs`), `policy`, `tools` and `search_tool`.
"""

from typing import TYPE_CHECKING

from ._plugin import apply
from ._writing import Edit
from .errors import FsError, SearchError
from .events import FsEditIntent, FsObserved, FsWriteIntent
from .service import FsService
from .types import (
    Change,
    CreateIfAbsent,
    DirEntry,
    EditExpectation,
    FilePolicy,
    FsStat,
    FsTarget,
    FsText,
    FsVersion,
    LineWindow,
    ReplaceIfVersion,
    WriteExpectation,
)

if TYPE_CHECKING:  # pydantic is loaded when somebody mounts or configures the plugin, not before
    from .config import Config as Config

name = "fs"


def __getattr__(attribute: str) -> object:
    if attribute == "Config":
        from .config import Config

        return Config
    raise AttributeError(f"module {__name__!r} has no attribute {attribute!r}")


__all__ = [
    "Change",
    "Config",
    "CreateIfAbsent",
    "DirEntry",
    "Edit",
    "EditExpectation",
    "FilePolicy",
    "FsEditIntent",
    "FsError",
    "FsObserved",
    "FsService",
    "FsStat",
    "FsTarget",
    "FsText",
    "FsVersion",
    "FsWriteIntent",
    "LineWindow",
    "ReplaceIfVersion",
    "SearchError",
    "WriteExpectation",
    "apply",
    "name",
]
