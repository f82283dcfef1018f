"""The headers of every request (L91)."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

RESERVED = frozenset(
    {
        "user-agent",
        "authorization",
        "content-type",
        "content-length",
        "transfer-encoding",
        "accept",
        "accept-encoding",
        "connection",
    }
)
"""Names that a profile cannot set: attribution, credentials, framing."""


@cache
def _version(distribution: str) -> str:
    return version(distribution)


def attribution_headers(distribution: str, product: str | None = None) -> dict[str, str]:
    """Who sends the request: product, version and home, nothing about user or machine.

    Args:
        distribution: The adapter's package, whose installed version counts.
        product: Another name for it; it cannot be left out.
    """
    home = f"https://pypi.org/project/{distribution}/"
    return {"user-agent": f"{product or distribution}/{_version(distribution)} (+{home})"}


def request_headers(
    distribution: str, extra: Mapping[str, str], *, keep_alive: bool = True
) -> dict[str, str]:
    """All headers of a request except the key's."""
    return {
        **{name.lower(): value for name, value in extra.items() if name.lower() not in RESERVED},
        **attribution_headers(distribution),
        "content-type": "application/json",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "connection": "keep-alive" if keep_alive else "close",
    }
