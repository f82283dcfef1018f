"""What the loader tells: rows that changed by themselves, and what watching found."""

from typing import ClassVar

from dsh_cordis import Emit


class ConfigUpdateFailed(Emit, frozen=True):
    """A watched configuration file changed and could not be taken; the last good rows go on."""

    name: ClassVar[str] = "hmr/config-update-failed"
    error: Exception
    """What went wrong; its message names file, row or stage."""


class ModulesChanged(Emit, frozen=True):
    """Watched source files changed, whether or not anything that runs depends on them."""

    name: ClassVar[str] = "hmr/changed"
    paths: tuple[str, ...]
    """The files."""


class ModulesReloaded(Emit, frozen=True):
    """Changed code was taken over."""

    name: ClassVar[str] = "hmr/reloaded"
    modules: tuple[str, ...]
    """The modules that were imported again."""

    rows: tuple[str, ...]
    """The rows whose plugin was replaced."""


class ReloadFailed(Emit, frozen=True):
    """Changed code could not be taken over; the old code goes on."""

    name: ClassVar[str] = "hmr/reload-failed"
    error: Exception
    """What went wrong; its cause is the original exception."""


class RestartRequired(Emit, frozen=True):
    """Code changed that cannot be replaced in a running process, such as the kernel's."""

    name: ClassVar[str] = "hmr/restart-required"
    modules: tuple[str, ...]
    """The modules that changed."""
