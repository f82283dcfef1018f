"""Where keys come from, and what a usable key looks like (L100-L102)."""

import os
import re
from collections.abc import Awaitable, Callable

from dsh_brand import Secret, js_trim
from dsh_llm import LlmError, codes

CredentialLookup = Callable[[str], Awaitable[str | None]]
"""Gives the credential that a profile refers to by name, `None` or empty when there is none."""

_KEY = re.compile(r"[!-~]+")


async def environment(reference: str) -> str | None:
    """The default lookup: the environment variable of that name, read anew for each stream."""
    return os.environ.get(reference)


async def resolve_key(
    distribution: str, route: str, reference: str | None, lookup: CredentialLookup
) -> Secret | None:
    """The key of one stream; `None` for a profile that needs none.

    Args:
        distribution: The adapter's package, named in messages.
        route: The route, named in messages.
        reference: What the profile calls the key.
        lookup: Finds it.

    Raises:
        LlmError: `MISSING_CREDENTIAL`, or `INVALID_CREDENTIAL` for text that no header can carry.
    """
    if reference is None:
        return None
    found = await lookup(reference)
    if not found:
        raise LlmError(
            f"route {route!r} needs the key {reference!r}: set the environment variable "
            f"{reference}, or name another one as `api_key_env` in the profile of "
            f"{distribution}",
            codes.MISSING_CREDENTIAL,
        )
    trimmed = js_trim(found)
    if _KEY.fullmatch(trimmed) is None:
        raise LlmError(
            f"{distribution}: the key {reference!r} of route {route!r} is empty or holds a space, "
            "a control or a non-ASCII character; copy it again",
            codes.INVALID_CREDENTIAL,
        )
    return Secret(trimmed)
