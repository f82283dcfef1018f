"""Scope keys and their parents. Upstream: packages/core/dsh-scope of the harness.

A key is compared by identity and may be unhashable. Its record lives as long as a scope of that
key or the binding object holds it; the table itself keeps nothing alive.
"""

from collections.abc import Iterator
from weakref import WeakValueDictionary

from dsh_cordis.errors import ScopeError


class KeyRecord:
    """A key and the key above it."""

    __slots__ = ("__weakref__", "bound", "key", "parent")

    def __init__(self, key: object) -> None:
        self.key = key
        self.parent: KeyRecord | None = None
        self.bound = False


# The record holds its key, so an id cannot be used again while the entry lives.
_records: WeakValueDictionary[int, KeyRecord] = WeakValueDictionary()


def record_for(key: object) -> KeyRecord:
    """The record of a key, made when there is none."""
    record = _records.get(id(key))
    if record is None:
        record = _records[id(key)] = KeyRecord(key)
    return record


def find_record(key: object) -> KeyRecord | None:
    """The record of a key, if a scope or a binding of it lives."""
    return None if key is None else _records.get(id(key))


def chain(key: object) -> Iterator[object]:
    """The key and those above it, nearest first; of None nothing."""
    if key is None:
        return
    yield key
    record = find_record(key)
    while record is not None and record.parent is not None:
        record = record.parent
        yield record.key


def link(record: KeyRecord, parent: object) -> None:
    """Set the parent of a key; a cycle raises and changes nothing."""
    if parent is None:
        record.parent = None
        return
    above: KeyRecord | None = record_for(parent)
    new_parent = above
    while above is not None:
        if above is record:
            raise ScopeError(f"scope key {record.key!r} cannot stand below itself")
        above = above.parent
    record.parent = new_parent
