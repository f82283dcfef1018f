"""Rows that registrations own together: all of a registration's rows go in, or none."""

from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from dsh_cordis import Completion, Handle
from dsh_llm import codes
from dsh_llm.failures import LlmError

T = TypeVar("T")
V = TypeVar("V")
T_contra = TypeVar("T_contra", contravariant=True)


class Owner:
    """One registration; `disposed` once it has ended."""

    __slots__ = ("disposed",)

    def __init__(self) -> None:
        self.disposed = False


class OwnedRows(Generic[V]):
    """Named rows in the order of their registration."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Owner, V]] = {}

    def get(self, name: str) -> V | None:
        """The row of a name."""
        row = self._rows.get(name)
        return None if row is None else row[1]

    def values(self) -> list[V]:
        """All rows."""
        return [value for _, value in self._rows.values()]

    def holds_other(self, name: str, owner: Owner) -> bool:
        """Whether another registration owns the name."""
        row = self._rows.get(name)
        return row is not None and row[0] is not owner

    def swap(self, owner: Owner, rows: Mapping[str, V]) -> bool:
        """Put `rows` at the end, for all that `owner` had; tells whether anything changed."""
        kept = {name: row for name, row in self._rows.items() if row[0] is not owner}
        changed = len(kept) != len(self._rows) or bool(rows)
        kept.update((name, (owner, value)) for name, value in rows.items())
        self._rows = kept
        return changed


class RegistrationHandle(Generic[T_contra]):
    """Ends a registration when called, once; `replace` swaps what it registered.

    Attributes:
        handle: The kernel's handle, for an effect that takes the registration in (`yield`).
    """

    def __init__(
        self, handle: Handle, owner: Owner, replace: Callable[[Sequence[T_contra]], None]
    ) -> None:
        self.handle = handle
        self._owner = owner
        self._replace = replace

    def __call__(self) -> Completion:
        """End the registration; the result may be awaited. A second call does nothing."""
        return self.handle()

    def replace(self, items: Sequence[T_contra]) -> None:
        """Register `items` in the place of the present ones, in one step; may be empty.

        Raises:
            LlmError: The registration has ended (`REGISTRATION_DISPOSED`), or the items are
                refused as at registration; then nothing has changed.
        """
        if self._owner.disposed:
            raise LlmError(
                "this registration has ended: register again instead of replacing",
                codes.REGISTRATION_DISPOSED,
            )
        self._replace(items)
