"""Where `dsh` keeps what belongs to the user: sessions, and plugin rows in `dsh.toml`."""

import os
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from dsh_cli.errors import CliError

HOME_VARIABLE = "DSH_HOME"
"""Names a folder that takes the place of both platform folders."""


def data_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The folder of sessions and demos; created by whoever writes into it."""
    home = env.get(HOME_VARIABLE)
    return Path(home).expanduser() if home else Path(platformdirs.user_data_dir("dsh", False))


def sessions_root(env: Mapping[str, str] = os.environ) -> Path:
    """The root of the session store."""
    return data_dir(env) / "sessions"


def config_file(env: Mapping[str, str] = os.environ) -> Path:
    """The user's `dsh.toml`; it may be absent."""
    home = env.get(HOME_VARIABLE)
    folder = Path(home).expanduser() if home else Path(platformdirs.user_config_dir("dsh", False))
    return folder / "dsh.toml"


def ensure_writable(folder: Path) -> Path:
    """Make `folder` and see that files can be written there.

    Raises:
        CliError: It cannot be made or written to.
    """
    probe = folder / f".write-probe-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise CliError(
            f"sessions cannot be written to {str(folder)!r} ({error.strerror}): "
            f"make it writable, or name another folder in {HOME_VARIABLE}",
            "DATA_DIR",
        ) from error
    return folder
