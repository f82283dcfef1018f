"""What the kernel raises.

HarnessError
└── CordisError
    ├── ServiceUnavailable (also AttributeError)  SERVICE_UNAVAILABLE
    ├── ServiceConflict                           SERVICE_CONFLICT
    ├── InactiveError                             INACTIVE_EFFECT
    ├── DeadlockError                             DEADLOCK
    ├── ConfigError                               CONFIG_INVALID
    ├── NotEnteredError                           ROOT_NOT_ENTERED
    └── ScopeError                                SCOPE_INVALID

Misuse by code (a wrong plugin shape, a wrong dispatch method) is `TypeError` or `ValueError`.
"""

from collections.abc import Sequence

from dsh_brand import HarnessError


class CordisError(HarnessError):
    """Base of the kernel's own errors."""


class ServiceUnavailable(CordisError, AttributeError):  # noqa: N818  # upstream's noun
    """A service was read that is not there; `declared` tells which of the two reasons holds."""

    def __init__(self, key: str, fiber: str, *, declared: bool) -> None:
        """Args: the key that was read, the reading fiber's name, and whether that declared it."""
        if declared:
            text = f"service {key!r} is declared by {fiber!r} but not available now"
        else:
            text = (
                f"{fiber!r} has no service {key!r}: it is not declared there; annotate it on the "
                f"plugin's context class, list it in `inject`, or use ctx.get({key!r})"
            )
        super().__init__(text, "SERVICE_UNAVAILABLE")
        self.key = key
        self.fiber = fiber
        self.declared = declared


class ServiceConflict(CordisError):  # noqa: N818  # upstream's noun
    """A key was claimed that another fiber holds."""

    def __init__(self, key: str, holder: str) -> None:
        """Args: the key, and the name of the fiber that holds it."""
        super().__init__(
            f"service {key!r} is already provided by {holder!r}; dispose that plugin first or "
            f"isolate {key!r} for this one",
            "SERVICE_CONFLICT",
        )
        self.key = key
        self.holder = holder


class InactiveError(CordisError):
    """Something was registered on a context whose activation has ended."""

    def __init__(self, fiber: str, what: str) -> None:
        """Args: the fiber's name, and what was refused."""
        super().__init__(
            f"{what} refused: the activation of {fiber!r} that this context belongs to has ended; "
            "use the context that the running plugin body received",
            "INACTIVE_EFFECT",
        )
        self.fiber = fiber


class DeadlockError(CordisError):
    """A wait was refused because what it waits for waits for the caller."""

    def __init__(self, caller: str, target: str) -> None:
        """Args: the name of the waiting fiber and of the one it would wait for."""
        super().__init__(
            f"{caller!r} cannot wait for {target!r}, which itself waits for {caller!r}; "
            "start the wait from a background task (ctx.spawn) or drop the await",
            "DEADLOCK",
        )


class ConfigError(CordisError):
    """A plugin's configuration is invalid; lists every problem."""

    def __init__(
        self,
        plugin: str,
        problems: Sequence[tuple[str, str]],
        cause: BaseException | None = None,
    ) -> None:
        """Args: the plugin's name, `(path, message)` pairs, and the model's own error."""
        lines = "; ".join(f"{path or '(whole)'}: {text}" for path, text in problems)
        super().__init__(f"invalid config for plugin {plugin!r}: {lines}", "CONFIG_INVALID", cause)
        self.plugin = plugin
        self.problems: tuple[tuple[str, str], ...] = tuple(problems)


class NotEnteredError(CordisError):
    """Asynchronous work was asked of a root that is not open."""

    def __init__(self, what: str) -> None:
        """Args: what was refused."""
        super().__init__(
            f"{what} needs an open root; enter it first: async with Context() as ctx",
            "ROOT_NOT_ENTERED",
        )


class ScopeError(CordisError):
    """A scope key was bound twice, or in a cycle, or a scoped event lacks its target."""

    def __init__(self, message: str) -> None:
        """Args: what was wrong."""
        super().__init__(message, "SCOPE_INVALID")
