"""A switch for tests: no request leaves this machine while somebody forbids it.

Every adapter that sends requests calls `refuse_real_request(url)` before it opens a connection;
`dsh_llm.testing.forbid_real_requests()` turns the switch.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from dsh_llm import codes
from dsh_llm.failures import LlmError


class _Switch:
    """How many blocks forbid requests now; of the process, since adapters run in any task."""

    forbidden = 0


def refuse_real_request(url: str) -> None:
    """Refuse a request to another machine if a test forbids those; otherwise do nothing.

    Args:
        url: Where the request would go. Of it only the host is shown.

    Raises:
        LlmError: `REAL_REQUEST_FORBIDDEN`; no policy retries it unless it names the code.
    """
    if _Switch.forbidden and not is_loopback(url):
        host = _host_of(url)
        raise LlmError(
            f"a request to {host!r} was about to leave this machine inside forbid_real_requests(): "
            "script the model, or point the route at a mock server on loopback",
            codes.REAL_REQUEST_FORBIDDEN,
        )


def is_loopback(url: str) -> bool:
    """Whether the host of a URL is this machine."""
    # Imported here, as in `_host_of`: most programs have imported neither, and some never ask.
    from ipaddress import ip_address

    host = _host_of(url)
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _host_of(url: str) -> str:
    from urllib.parse import urlsplit

    return urlsplit(url).hostname or ""


@contextmanager
def real_requests_forbidden() -> Iterator[None]:
    """Forbid them inside the block; blocks may overlap, in any order."""
    _Switch.forbidden += 1
    try:
        yield
    finally:
        _Switch.forbidden -= 1
