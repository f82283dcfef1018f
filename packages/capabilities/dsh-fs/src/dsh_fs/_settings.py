"""What the parts are told; `dsh_fs.config.Config` is one.

The model itself is loaded when somebody mounts or configures the plugin: pydantic is a large part
of what importing this package would cost.
"""

from pathlib import Path
from typing import Protocol


class FsSettings(Protocol):
    """Where files may lie."""

    root: Path | None
    confine: bool


class SearchSettings(Protocol):
    """How searches show what they find."""

    sample_over_cap_glob_results: bool


class Settings(FsSettings, SearchSettings, Protocol):
    """Of the whole capability."""

    require_read: bool
