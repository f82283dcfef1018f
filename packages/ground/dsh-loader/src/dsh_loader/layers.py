"""Layers: what boots is one list of patches, applied once over nothing.

First the bundles of a profile in its order, then the profile's own patches, then those of the
home, then what stands on the command line. Upstream: packages/boot of the harness (profiles).
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from dsh_loader._toml import read_toml, write_table
from dsh_loader.errors import RowsError
from dsh_loader.patches import Patch, Patched, apply_patches, load_layer
from dsh_loader.rows import GROUP_USE, Row, problems_of


class Profile(BaseModel):
    """The `[profile]` table of a profile file; its rows and patches stand beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bundles: tuple[str, ...] = ()
    """Files whose rows and patches come first, in this order; relative to the profile."""


def compose(
    profile: Path | str | None = None,
    *,
    home: Path | str | None = None,
    overlays: Iterable[Path | str | Sequence[Patch]] = (),
) -> Patched:
    """Put all layers together.

    Args:
        profile: A profile file.
        home: The user's own file; it may be absent.
        overlays: Files or patches given for this run, the last ones winning.

    Returns:
        The rows that boot, and why patches were skipped.

    Raises:
        RowsError: A file exists and cannot be taken, or one that must exist does not.
    """
    patches: list[Patch] = []
    if profile is not None:
        path = Path(profile)
        for bundle in load_profile(path).bundles:
            patches += load_layer(path.parent / Path(bundle).expanduser())
        patches += load_layer(path)
    if home is not None:
        patches += load_layer(home, optional=True)
    for overlay in overlays:
        patches += load_layer(overlay) if isinstance(overlay, Path | str) else overlay
    return apply_patches((), patches)


def load_profile(path: Path | str) -> Profile:
    """Read the `[profile]` table of a file; one without it has no bundles.

    Raises:
        RowsError: The file cannot be taken.
    """
    table = read_toml(Path(path)).get("profile", {})
    try:
        return Profile.model_validate(table)
    except ValidationError as error:
        problems = problems_of(error)
    raise RowsError(f"{path}: [profile]: {problems}")


def dump_rows(rows: Iterable[Row]) -> str:
    """Rows as the text of a file that `load_rows` reads; expressions as they were written."""
    return "\n".join(write_table("plugin", _table(row)) for row in rows)


def _table(row: Row) -> dict[str, Any]:
    table: dict[str, Any] = {"id": row.id}
    if row.use != GROUP_USE:
        table["use"] = row.use
    given = row.model_dump(exclude_defaults=True, exclude={"id", "use", "rows", "group"})
    table |= given
    if row.is_group:
        table["group"] = True
    if row.rows and row.include is None:
        table["plugin"] = [_table(each) for each in row.rows]
    return table
