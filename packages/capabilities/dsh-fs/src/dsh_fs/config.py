"""Configuration of the file capability."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, field_validator


class Config(BaseModel):
    """Where files may lie, and how careful the tools are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    root: Path | None = None
    """The workspace; the process's working directory if left out."""
    confine: bool = False
    """Refuse everything whose real path leaves the root."""
    require_read: bool = True
    """Refuse to overwrite or edit what the agent has not read, or what changed since."""
    sample_over_cap_glob_results: bool = True
    """Of more than 100 files found, show some of each top-level entry, not those changed first."""

    @field_validator("root")
    @classmethod
    def _exists(cls, root: Path | None) -> Path | None:
        if root is not None and not root.is_dir():
            raise ValueError(f"{str(root)!r} is no directory; name an existing one")
        return root
