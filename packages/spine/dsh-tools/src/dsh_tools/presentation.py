"""Views of calls and results for user interfaces, tagged by `card`. Pure data."""

from typing import Literal, TypeAlias

from dsh_brand import Json, Wire
from dsh_llm import ContentBlock

CardKind: TypeAlias = Literal[
    "read", "edit", "delete", "move", "search", "execute", "fetch", "other"
]


class Location(Wire, frozen=True):
    """A place in a file."""

    path: str
    line: int | None = None
    """Counts from 1."""


class Diff(Wire, frozen=True):
    """A change of one file."""

    path: str
    old_text: str | None
    """`None` for a new file, or where it is not known yet."""
    new_text: str


class CallView(Wire, frozen=True, tag_field="card"):
    """Base of the views of a call."""


class GenericCall(CallView, frozen=True, tag="generic"):
    """Any call."""

    title: str
    kind: CardKind | None = None
    raw_input: Json = None
    content: tuple[ContentBlock, ...] | None = None
    locations: tuple[Location, ...] | None = None


class TerminalCall(CallView, frozen=True, tag="terminal"):
    """A command."""

    title: str
    description: str | None = None
    cwd: str | None = None


class DiffCall(CallView, frozen=True, tag="diff"):
    """A change of files, as asked for."""

    title: str
    diffs: tuple[Diff, ...]
    locations: tuple[Location, ...] | None = None


class ResultView(Wire, frozen=True, tag_field="card"):
    """Base of the views of a result."""


class GenericResult(ResultView, frozen=True, tag="generic"):
    """Any result."""

    title: str | None = None
    content: tuple[ContentBlock, ...] | None = None


class TerminalResult(ResultView, frozen=True, tag="terminal"):
    """The end of a command."""

    title: str | None = None
    output: str | None = None
    exit_code: int | None = None
    signal: str | None = None


class DiffResult(ResultView, frozen=True, tag="diff"):
    """What was changed."""

    diffs: tuple[Diff, ...]
    title: str | None = None


class SearchResult(ResultView, frozen=True, tag="search"):
    """What was found."""

    shape: Literal["matches", "paths"]
    truncated: bool
    total: int


class NumberedLine(Wire, frozen=True):
    """A line of a file."""

    number: int
    text: str


class ReadResult(ResultView, frozen=True, tag="read"):
    """A part of a file."""

    path: str
    offset: int
    lines: tuple[NumberedLine, ...]
    total_lines: int
    lang: str | None = None
    content: tuple[ContentBlock, ...] | None = None


class WebResult(ResultView, frozen=True, tag="web"):
    """Pages that were searched for or fetched."""

    kind: Literal["search", "fetch"]
    title: str | None = None
    content: tuple[ContentBlock, ...] | None = None
