"""File service and the read, write, edit and glob tools.

The package is a plugin: `ctx.plugin(dsh_fs, {"root": ".", "confine": True})`. Its parts mount alone
too: `FsService` (`ctx.fs`), `policy`, `tools` and `search_tool`.
"""

from ._plugin import apply
from ._writing import Edit
from .config import Config
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

name = "fs"

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
