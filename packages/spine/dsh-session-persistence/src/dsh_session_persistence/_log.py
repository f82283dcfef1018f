"""The logger of the stores, made when something is logged.

structlog takes a good part of the time in which a program with the whole spine starts, and most
runs log nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Only the annotation needs it; see above.
    from structlog.typing import FilteringBoundLogger


def log() -> "FilteringBoundLogger":
    """Log as a store."""
    import structlog

    logger: FilteringBoundLogger = structlog.get_logger("dsh_session_persistence")
    return logger
