"""The edges in a row: from any old format to the present one."""

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from dsh_session_jsonl.formats.physical import old_header
from dsh_session_jsonl.formats.rows import Json, Row
from dsh_session_jsonl.formats.v0_to_v1 import ZeroToOne
from dsh_session_jsonl.formats.v1_to_v2 import OneToTwo
from dsh_session_jsonl.formats.v2_to_v3 import TwoToThree
from dsh_session_jsonl.formats.v3_to_v4 import ThreeToFour


class Edge(Protocol):
    """One step from a format to the next. Rows come in order; errors end the conversion."""

    def __init__(self, header: Json) -> None:
        """Begin a log whose header, in the older of the two formats, is this one."""

    @staticmethod
    def header(header: Json) -> Json:
        """The header in the newer format."""
        ...

    def push(self, row: Row) -> Iterator[Row]:
        """What can be said of the newer log after the next row of the older one."""
        ...

    def finish(self) -> Iterator[Row]:
        """What was held back until the end of the log."""
        ...


EDGES: Final[tuple[type[Edge], ...]] = (ZeroToOne, OneToTwo, TwoToThree, ThreeToFour)
"""By the version they start from."""


class Chain:
    """Converts one log, row by row."""

    def __init__(self, version: int, header: Json) -> None:
        """Begin with the header of a log of that version, as it was read.

        Raises:
            OldFormatError: The header cannot be converted.
        """
        self._edges: list[Edge] = []
        header = old_header(header, version)
        for edge in EDGES[version:]:
            self._edges.append(edge(header))
            header = edge.header(header)
        self.header = header
        """The header in the present format, not yet checked."""

    def push(self, row: Row) -> list[Row]:
        """What the next row gives, in the present format.

        Raises:
            OldFormatError: The log cannot be converted.
        """
        return self._through([row], 0)

    def finish(self) -> list[Row]:
        """What the end of the log gives.

        Raises:
            OldFormatError: The log cannot be converted.
        """
        out: list[Row] = []
        for index, edge in enumerate(self._edges):
            out.extend(self._through(edge.finish(), index + 1))
        return out

    def _through(self, rows: Iterable[Row], start: int) -> list[Row]:
        found = list(rows)
        for edge in self._edges[start:]:
            found = [new for row in found for new in edge.push(row)]
        return found


def migrate_header(version: int, header: Json) -> Json:
    """The header alone in the present format, not yet checked.

    Raises:
        OldFormatError: It cannot be converted.
    """
    return Chain(version, header).header
