"""What a child process inherits of the host's environment."""

import os
from collections.abc import Mapping
from typing import Final

_SECRET_WORDS: Final = ("KEY", "PASSWORD", "SECRET", "TOKEN")
_OWN_PREFIX: Final = "DSH_"


def is_withheld(name: str) -> bool:
    """True for names that look like credentials, and for the harness's own."""
    upper = name.upper()
    return upper.startswith(_OWN_PREFIX) or any(word in upper for word in _SECRET_WORDS)


def child_environment(
    overrides: Mapping[str, str | None] | None = None, *, host: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of a child.

    Args:
        overrides: Applied last; may bring a withheld name back, `None` removes one.
        host: The process's own environment by default.
    """
    source = os.environ if host is None else host
    env = {name: value for name, value in source.items() if not is_withheld(name)}
    for name, value in (overrides or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env
