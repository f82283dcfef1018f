"""Scope keys and their parents. Upstream: packages/core/dsh-scope of the harness.

A key is compared by identity and may be unhashable. Its record lives as long as a scope of that
key or the binding object holds it; the table itself keeps nothing alive.
"""

from collections.abc import Iterator
from typing import ClassVar
from weakref import WeakValueDictionary

from dsh_cordis.errors import ScopeError
from dsh_cordis.handle import Record


class KeyRecord(Record, eq=False, weakref=True):
    """A key and the key above it."""

    key: object
    parent: "KeyRecord | None" = None
    bound: bool = False
    moves: ClassVar[int] = 0
    """How often a key got another parent; what was computed along a chain is stale then."""


# The record holds its key, so an id cannot be used again while the entry lives.
_records: WeakValueDictionary[int, KeyRecord] = WeakValueDictionary()


def record_for(key: object) -> KeyRecord:
    """The record of a key, made when there is none."""
    record = find_record(key)
    if record is None:
        record = _records[id(key)] = KeyRecord(key)
    return record


def find_record(key: object) -> KeyRecord | None:
    """The record of a key, if a scope or a binding of it lives."""
    return None if key is None else _records.get(id(key))


def chain_of(record: KeyRecord | None) -> Iterator[KeyRecord]:
    """A record and those above it, nearest first."""
    while record is not None:
        yield record
        record = record.parent


def link(record: KeyRecord, parent: object) -> None:
    """Set the parent of a key; a cycle raises and changes nothing."""
    above = None if parent is None else record_for(parent)
    if record in chain_of(above):
        raise ScopeError(f"scope key {record.key!r} cannot stand below itself")
    KeyRecord.moves += 1
    record.parent = above
