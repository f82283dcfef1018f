"""Errors of the HTTP base and of the adapters on it.

    HarnessError
    ├── LlmError (dsh_llm): a call failed; its `code` tells policies what to do
    └── ProfileError: a route is used that no profile describes, or a profile cannot be used

A failing call raises `LlmError` from the stream, which `ctx.llm` turns into the finish chunk;
a mistake in the configuration fails the plugin load as the kernel's `ConfigError`.
"""

from dsh_brand import HarnessError


class ProfileError(HarnessError):
    """A route or its profile cannot be used (code `INVALID_PROFILE`)."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "INVALID_PROFILE")
