"""Patches: changes to a list of rows that somebody else wrote.

Upstream: packages/boot of the harness (include patches).
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dsh_loader._toml import read_toml
from dsh_loader.errors import RowsError
from dsh_loader.rows import Row, check_ids, parse_rows, problems_of


class Patch(BaseModel):
    """Rows to add, or fields of one row to replace."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str | None = None
    """The row to change; with `insert` the group that gets the rows."""

    insert: tuple[Row, ...] | None = None
    """Rows to append to that group, or to the whole list when no `id` stands here."""

    use: str | None = None
    """A guard: the patch is skipped unless the row uses this."""

    config: dict[str, Any] | None = None
    """Replaces the whole config; nothing is merged."""

    disabled: bool | str = False
    """Replaces `disabled`."""

    inject: dict[str, Any] | list[str] = Field(default_factory=list)
    """Replaces `inject`."""

    intercept: dict[str, Any] = Field(default_factory=dict)
    """Replaces `intercept`."""

    isolate: dict[str, bool | str] = Field(default_factory=dict)
    """Replaces `isolate`."""

    plugin: tuple[Row, ...] = ()
    """Replaces the rows of a group; later patches of the same list do not reach these."""

    @model_validator(mode="after")
    def _one_kind(self) -> "Patch":
        if self.insert is not None and self.changes():
            raise ValueError("a patch either inserts rows or changes fields; write two")
        return self

    def changes(self) -> dict[str, Any]:
        """The fields of a row that it replaces."""
        given = self.model_fields_set - {"id", "insert", "use"}
        return {("rows" if name == "plugin" else name): getattr(self, name) for name in given}


class Patched(msgspec.Struct, frozen=True):
    """What applying patches gave."""

    rows: list[Row]
    """The new list."""

    warnings: list[str]
    """One text for each patch that was skipped."""


class _Node:
    """A row that is being changed; only those in the index can be reached by patches."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.below = [_Node(each) for each in row.rows] if row.include is None else []

    def register(self, index: "dict[str, _Node]") -> None:
        index[self.row.id] = self
        for node in self.below:
            node.register(index)

    def forget(self, index: "dict[str, _Node]") -> None:
        index.pop(self.row.id, None)
        for node in self.below:
            node.forget(index)

    def built(self) -> Row:
        if self.row.include is not None:
            return self.row
        below = tuple(node.built() for node in self.below)
        emptied = self.row.is_group and not below
        return self.row.model_copy(update={"rows": below, "group": self.row.group or emptied})


def apply_patches(rows: Iterable[Row], patches: Sequence[Patch]) -> Patched:
    """Apply patches in order; neither list is changed.

    Raises:
        RowsError: Two rows of the result share an id, or a change makes a row invalid.
    """
    root = [_Node(row) for row in rows]
    index: dict[str, _Node] = {}
    for node in root:
        node.register(index)
    warnings = []
    for number, patch in enumerate(patches, 1):
        problem = _apply(patch, root, index)
        if problem is not None:
            warnings.append(f"patch {number} is skipped: {problem}")
    result = [node.built() for node in root]
    check_ids(result, "the patched rows")
    return Patched(result, warnings)


def _apply(patch: Patch, root: list[_Node], index: dict[str, _Node]) -> str | None:
    """Apply one patch, or say why it is skipped."""
    if patch.id is None and patch.insert is None:
        return "it names no row; give `id`, or rows to `insert`"
    node = None if patch.id is None else index.get(patch.id)
    if patch.id is not None and node is None:
        return f"there is no row {patch.id!r}"
    if node is not None and patch.use is not None and patch.use != node.row.use:
        return f"row {node.row.id!r} uses {node.row.use!r} and not {patch.use!r}"
    if patch.insert is not None:
        if node is not None and not node.row.is_group:
            return f"row {node.row.id!r} is no group, so nothing can be inserted into it"
        _insert(patch.insert, root if node is None else node.below, index)
    elif node is not None:
        _override(node, patch.changes(), index)
    return None


def _insert(rows: Sequence[Row], into: list[_Node], index: dict[str, _Node]) -> None:
    for row in rows:
        node = _Node(row)
        node.register(index)
        into.append(node)


def _override(node: _Node, changes: Mapping[str, Any], index: dict[str, _Node]) -> None:
    fields = {name: getattr(node.row, name) for name in node.row.model_fields_set}
    fields.pop("plugin", None)
    fields["rows"] = tuple(each.built() for each in node.below)
    if node.row.is_group:
        fields["group"] = True
    try:
        node.row = Row.model_validate({"id": node.row.id, **fields, **changes})
    except ValidationError as error:
        raise RowsError(f"the patch of row {node.row.id!r}: {problems_of(error)}") from None
    if "rows" in changes:
        for gone in node.below:
            gone.forget(index)
        # Not registered: an override carries its rows whole.
        node.below = [_Node(row) for row in changes["rows"]]


def load_layer(path: Path | str, *, optional: bool = False) -> list[Patch]:
    """Read a file as patches: its `[[plugin]]` rows are inserted, then its `[[patch]]` tables.

    Raises:
        RowsError: The file cannot be taken; the message names file and entry.
    """
    path = Path(path)
    document = read_toml(path, optional=optional)
    rows = parse_rows(document.get("plugin", []), path)
    entries = document.get("patch", [])
    if not isinstance(entries, list):
        raise RowsError(f"{path}: `patch` must be a list; write each one as [[patch]]")
    patches = [Patch(insert=tuple(rows))] if rows else []
    return patches + [_patch(path, number, entry) for number, entry in enumerate(entries, 1)]


def _patch(path: Path, number: int, entry: object) -> Patch:
    if not isinstance(entry, Mapping):
        raise RowsError(f"{path}: patch entry {number} must be a table, not {entry!r}")
    located = dict(entry)
    for name in ("insert", "plugin"):
        if isinstance(entry.get(name), list):
            located[name] = tuple(parse_rows(entry[name], path))
    try:
        return Patch.model_validate(located)
    except ValidationError as error:
        problems = problems_of(error)
    raise RowsError(f"{path}: patch entry {number}: {problems}")
