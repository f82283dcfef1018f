"""Rows: which plugins run, with which configuration, as a person writes it in `dsh.toml`.

Upstream: packages/loader of Cordis and packages/boot of the harness.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dsh_loader._toml import read_toml
from dsh_loader.errors import RowsError
from dsh_loader.expressions import has_expression

GROUP_USE = "group"
"""What a row that only holds other rows uses."""

_PLAIN = ("id", "use", "inject", "intercept", "isolate", "include")


class Row(BaseModel):
    """One plugin to mount, a group of rows, or the rows of another file."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    id: str = Field(default_factory=lambda: uuid4().hex, min_length=1)
    """Names the row in messages and patches; a row without one gets a new one at every read."""

    use: str = Field(default=GROUP_USE, min_length=1)
    """An installed plugin's name, or `module:attribute`; left out on a group or an include."""

    config: dict[str, Any] | None = None
    """Handed to the plugin, whose own model checks it; expressions in it are evaluated first."""

    disabled: bool | str = False
    """Leave the row out, and what is below it; an expression such as `"${not env.CI}"` may tell."""

    inject: dict[str, Any] | list[str] = Field(default_factory=list)
    """Services that it needs beside those it asks for itself; a table adds config for them."""

    intercept: dict[str, Any] = Field(default_factory=dict)
    """Configuration that services see when they are used from here and below."""

    isolate: dict[str, bool | str] = Field(default_factory=dict)
    """Services with a realm of their own here and below: `true`, or a label that rows share."""

    rows: tuple["Row", ...] = Field(default=(), alias="plugin")
    """The rows of a group."""

    group: bool = False
    """That this is a group though it holds no row."""

    include: str | None = None
    """A file whose rows stand below this one; relative to the file that says so."""

    @property
    def is_group(self) -> bool:
        """Whether it holds rows of this tree, so that a patch may insert into it."""
        return self.include is None and (self.group or bool(self.rows))

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        holder = self.is_group or self.include is not None
        if holder == (self.use != GROUP_USE):
            kind = "a group or an include has no plugin of its own" if holder else "give `use`"
            raise ValueError(f"{kind}; `use` is {self.use!r}")
        if holder and self.config is not None:
            raise ValueError("a group or an include takes no `config`")
        if self.include is not None and self.rows:
            raise ValueError("an include has no rows of its own; put them into a group beside it")
        for name in _PLAIN:
            if has_expression(getattr(self, name)):
                raise ValueError(f"an expression may stand in config and disabled, not in `{name}`")
        if isinstance(self.disabled, str) and not has_expression(self.disabled):
            raise ValueError("`disabled` is true, false or an expression")
        return self


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
    document = read_toml(path, optional=optional)
    rows = parse_rows(document.get("plugin", []), path)
    check_ids(rows, str(path))
    return rows


def parse_rows(entries: object, path: Path) -> list[Row]:
    """The rows of a `[[plugin]]` list; includes get the whole path of their file.

    Raises:
        RowsError: An entry is no valid row; the message names file and entry.
    """
    if not isinstance(entries, list):
        raise RowsError(f"{path}: `plugin` must be a list; write each row as [[plugin]]")
    return [_row(path, number, entry) for number, entry in enumerate(entries, 1)]


def check_ids(rows: Iterable[Row], where: str) -> None:
    """Refuse two rows of one id, in whatever group.

    Raises:
        RowsError: Naming the id.
    """
    seen: set[str] = set()
    for row in flatten(rows):
        if row.id in seen:
            raise RowsError(f"{where}: two rows have the id {row.id!r}; give each its own")
        seen.add(row.id)


def flatten(rows: Iterable[Row]) -> Iterator[Row]:
    """All rows, each before those below it."""
    for row in rows:
        yield row
        yield from flatten(row.rows)


def expand_includes(rows: Iterable[Row], above: tuple[str, ...] = ()) -> list[Row]:
    """Put the rows of included files below the rows that include them.

    An included file is a tree of its own: ids below the include are prefixed with its id, and
    patches of the outer tree, which are applied before, do not reach them.

    Raises:
        RowsError: A file cannot be taken, or includes itself.
    """
    return [_expand(row, above) for row in rows]


def _expand(row: Row, above: tuple[str, ...]) -> Row:
    if row.include is None:
        return row.model_copy(update={"rows": tuple(expand_includes(row.rows, above))})
    if row.include in above:
        raise RowsError(f"{row.include} includes itself, through {' -> '.join(above)}")
    inner = expand_includes(load_rows(row.include), (*above, row.include))
    return row.model_copy(update={"rows": tuple(_prefixed(each, row.id) for each in inner)})


def _prefixed(row: Row, prefix: str) -> Row:
    below = tuple(_prefixed(each, prefix) for each in row.rows)
    return row.model_copy(update={"id": f"{prefix}/{row.id}", "rows": below})


def _row(path: Path, number: int, entry: object) -> Row:
    if not isinstance(entry, Mapping):
        raise RowsError(f"{path}: plugin entry {number} must be a table, not {entry!r}")
    try:
        return _located(Row.model_validate(entry), path)
    except ValidationError as error:
        problems = problems_of(error)
    name = f" ({entry['id']!r})" if isinstance(entry.get("id"), str) else ""
    raise RowsError(f"{path}: plugin entry {number}{name}: {problems}")


def _located(row: Row, path: Path) -> Row:
    """A row whose includes do not depend on where they are read from."""
    include = None if row.include is None else str(path.parent / Path(row.include).expanduser())
    below = tuple(_located(each, path) for each in row.rows)
    return row.model_copy(update={"include": include, "rows": below})


def problems_of(error: ValidationError) -> str:
    """What is wrong, without the values, which may hold credentials."""
    return "; ".join(
        f"{'.'.join(map(str, item['loc'])) or 'entry'}: {item['msg']}" for item in error.errors()
    )
