"""Scope keys and their parents. Upstream: packages/core/dsh-scope of the harness.

A key is compared by identity and may be unhashable. Its record lives as long as a scope of that
key or the binding object holds it; the table itself keeps nothing alive.
"""

from collections.abc import Iterator
from functools import partial
from typing import ClassVar
from weakref import ref

from dsh_cordis.errors import ScopeError
from dsh_cordis.handle import Record


class KeyRecord(Record, eq=False, weakref=True):
    """A key and the key above it."""

    key: object
    parent: "KeyRecord | None" = None
    bound: bool = False
    moves: ClassVar[int] = 0
    """How often a key got another parent; what was computed along a chain is stale then."""


# The record holds its key, so an id cannot be used again while the entry lives. Plain references
# with a callback are looked up in a third of the time that a WeakValueDictionary takes.
_records: dict[int, ref[KeyRecord]] = {}


def record_for(key: object) -> KeyRecord:
    """The record of a key, made when there is none."""
    record = find_record(key)
    if record is None:
        record = KeyRecord(key)
        _records[id(key)] = ref(record, partial(_forget, id(key)))
    return record


def _forget(ident: int, gone: ref[KeyRecord]) -> None:
    if _records.get(ident) is gone:
        del _records[ident]


def find_record(key: object) -> KeyRecord | None:
    """The record of a key, if a scope or a binding of it lives."""
    found = None if key is None else _records.get(id(key))
    return None if found is None else found()


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
