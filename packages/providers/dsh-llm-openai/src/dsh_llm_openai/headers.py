"""The headers of every request (L91)."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

_DISTRIBUTION = "dsh-llm-openai"
_HOME = "https://pypi.org/project/dsh-llm-openai/"

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
def _version() -> str:
    return version(_DISTRIBUTION)


def attribution_headers(product: str = _DISTRIBUTION) -> dict[str, str]:
    """Who sends the request: product, version and home, nothing about user or machine."""
    return {"user-agent": f"{product}/{_version()} (+{_HOME})"}


def request_headers(extra: Mapping[str, str], *, keep_alive: bool = True) -> dict[str, str]:
    """All headers of a request except the key's."""
    return {
        **{name.lower(): value for name, value in extra.items() if name.lower() not in RESERVED},
        **attribution_headers(),
        "content-type": "application/json",
        "accept": "text/event-stream",
        "accept-encoding": "identity",
        "connection": "keep-alive" if keep_alive else "close",
    }
