"""Reading session formats 0 to 3: pure, adjacent, frozen steps up to format 4.

No file is touched here, and nothing of today's vocabulary is imported: the result is judged by
`dsh_session` like any stored log.
"""

from dsh_session_jsonl.formats.call_pairs import CallPairs
from dsh_session_jsonl.formats.chain import EDGES, Chain, Edge, migrate_header
from dsh_session_jsonl.formats.errors import BrokenRowError, CannotConvertError, OldFormatError
from dsh_session_jsonl.formats.physical import native_row, rows_of
from dsh_session_jsonl.formats.rows import Replace, Row

__all__ = [
    "EDGES",
    "BrokenRowError",
    "CallPairs",
    "CannotConvertError",
    "Chain",
    "Edge",
    "OldFormatError",
    "Replace",
    "Row",
    "migrate_header",
    "native_row",
    "rows_of",
]
