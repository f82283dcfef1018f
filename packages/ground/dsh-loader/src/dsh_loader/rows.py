"""Rows: which plugins run, with which configuration, as a person writes it in `dsh.toml`.

Upstream: packages/loader of Cordis and packages/boot of the harness.
"""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dsh_loader.errors import RowsError


class Row(BaseModel):
    """One plugin to mount."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str = Field(default_factory=lambda: uuid4().hex, min_length=1)
    """Names the row in messages and patches; a row without one gets a new one at every read."""

    use: str = Field(min_length=1)
    """An installed plugin's name, or `module:attribute`."""

    config: dict[str, Any] | None = None
    """Handed to the plugin as it is; the plugin's own model checks it."""

    disabled: bool = False
    """Leave the row out."""


def load_rows(path: Path | str, *, optional: bool = False) -> list[Row]:
    """Read the `[[plugin]]` tables of a file; other tables are left to others.

    Args:
        path: A TOML file.
        optional: An absent file means no rows.

    Raises:
        RowsError: The file is unreadable or unparsable, an entry is no valid row, or two share
            an id; the message names file and entry.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            document = tomllib.load(file)
    except FileNotFoundError as error:
        if optional:
            return []
        raise RowsError(f"{path}: no such file; create it or leave it out", error) from error
    except OSError as error:
        raise RowsError(f"{path} cannot be read: {error.strerror or error}", error) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RowsError(f"{path} is no valid TOML: {error}", error) from error
    entries = document.get("plugin", [])
    if not isinstance(entries, list):
        raise RowsError(f"{path}: `plugin` must be a list; write each row as [[plugin]]")
    rows = [_row(path, number, entry) for number, entry in enumerate(entries, 1)]
    check_ids(rows, str(path))
    return rows


def check_ids(rows: Iterable[Row], where: str) -> None:
    """Refuse two rows of one id.

    Raises:
        RowsError: Naming the id.
    """
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            raise RowsError(f"{where}: two rows have the id {row.id!r}; give each its own")
        seen.add(row.id)


def _row(path: Path, number: int, entry: object) -> Row:
    if not isinstance(entry, Mapping):
        raise RowsError(f"{path}: plugin entry {number} must be a table, not {entry!r}")
    try:
        return Row.model_validate(entry)
    except ValidationError as error:
        # The model's own text shows the values, which may hold credentials.
        problems = "; ".join(
            f"{'.'.join(map(str, item['loc'])) or 'entry'}: {item['msg']}"
            for item in error.errors()
        )
    name = f" ({entry['id']!r})" if isinstance(entry.get("id"), str) else ""
    raise RowsError(f"{path}: plugin entry {number}{name}: {problems}")
