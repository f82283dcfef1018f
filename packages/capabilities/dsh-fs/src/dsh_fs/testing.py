"""For tests of what writes files."""

from pathlib import Path


def no_staging_left(root: Path) -> bool:
    """True if no write below `root` left its staging directory behind."""
    return not any(root.rglob(".dsh-stage-*"))
