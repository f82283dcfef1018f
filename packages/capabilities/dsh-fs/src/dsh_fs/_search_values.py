"""What the search tools return, and how a model reads it."""

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from . import texts

MAX_SHOWN_PATHS: Final = 100
MAX_SHOWN_MATCHES: Final = 250
MAX_LINE_BYTES: Final = 2000


class GlobValue(msgspec.Struct, frozen=True):
    """Files that were found, all of them."""

    paths: list[str]
    skipped: int | None = None
    """Directories that could not be read."""


class Match(msgspec.Struct, frozen=True):
    """A line that matches."""

    path: str
    line: int
    text: str


class GrepValue(msgspec.Struct, frozen=True):
    """Lines that were found, all of them."""

    matches: list[Match]
    skipped: int | None = None
    """Files and directories that could not be read."""


# ---- reading ripgrep's output ---------------------------------------------------------------


class _Text(msgspec.Struct):
    text: str | None = None
    bytes: str | None = None

    def decoded(self) -> str | None:
        """The text; `None` if it is not UTF-8."""
        return self.text

    def shown(self) -> str:
        if self.text is not None:
            return self.text
        return base64.b64decode(self.bytes or "").decode("utf-8", "replace")


class _Data(msgspec.Struct):
    path: _Text | None = None
    lines: _Text | None = None
    line_number: int | None = None


class _Event(msgspec.Struct):
    type: str
    data: _Data


_decoder: Final = msgspec.json.Decoder(_Event)


def read_matches(output: bytes) -> Iterator[Match]:
    """The matches in what `--json` gives; paths as ripgrep was asked for them."""
    for line in output.splitlines():
        if not line.startswith(b'{"type":"match"'):
            continue
        data = _decoder.decode(line).data
        text = None if data.lines is None else data.lines.decoded()
        yield Match(
            "" if data.path is None else data.path.shown(),
            data.line_number or 0,
            texts.NOT_UTF8 if text is None else text.removesuffix("\n").removesuffix("\r"),
        )


def read_paths(output: bytes) -> list[str]:
    """The paths in what `--null` gives."""
    return [path.decode("utf-8", "replace") for path in output.split(b"\0") if path]


# ---- rendering ------------------------------------------------------------------------------


def is_over_cap(value: Mapping[str, Any]) -> bool:
    """True if a model is shown a part only."""
    if "paths" in value:
        return len(value["paths"]) > MAX_SHOWN_PATHS
    return len(value["matches"]) > MAX_SHOWN_MATCHES


def render_glob(value: Mapping[str, Any], *, sample: bool) -> str:
    """A path a line, and how many more there are."""
    paths: list[str] = value["paths"]
    if not paths:
        return "\n".join([texts.NO_FILES, *_skipped(value)])
    shown = paths[:MAX_SHOWN_PATHS]
    if len(paths) > MAX_SHOWN_PATHS and sample:
        shown = _round_robin(paths, MAX_SHOWN_PATHS)
    lines = [shown_path(path) for path in shown]
    if len(shown) < len(paths):
        lines += ["", texts.MORE_FILES.format(shown=len(shown), total=len(paths))]
    return "\n".join([*lines, *_skipped(value)])


def render_grep(value: Mapping[str, Any], *, whole: bool = False) -> str:
    """A count, then the matches by file."""
    matches: list[Mapping[str, Any]] = value["matches"]
    if not matches:
        return "\n".join([texts.NO_MATCHES, *_skipped(value)])
    shown = matches if whole else matches[:MAX_SHOWN_MATCHES]
    total = len(matches)
    if len(shown) < total:
        lines = [texts.SOME_MATCHES.format(shown=len(shown), total=total)]
    else:
        lines = [texts.ONE_MATCH if total == 1 else texts.MATCHES.format(total=total)]
    path = None
    for match in shown:
        if match["path"] != path:
            path = match["path"]
            lines += ["", shown_path(match["path"])]
        text = match["text"] if whole else _cut(match["text"])
        lines.append(texts.MATCH_LINE.format(line=match["line"], text=text))
    return "\n".join([*lines, *_skipped(value)])


def render_whole(value: Mapping[str, Any]) -> str:
    """Everything, for a file."""
    if "paths" in value:
        return "\n".join(shown_path(path) for path in value["paths"])
    return render_grep(value, whole=True)


def shown_path(path: str) -> str:
    """A path on one line: quoted where it holds what breaks a line or turns it round."""
    return path if path.isprintable() else json.dumps(path)


def _skipped(value: Mapping[str, Any]) -> list[str]:
    count = value.get("skipped")
    return [texts.SKIPPED.format(count=count)] if count else []


def _cut(text: str) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_LINE_BYTES:
        return text
    return data[:MAX_LINE_BYTES].decode("utf-8", "ignore") + texts.LINE_CUT


def _round_robin(paths: Sequence[str], count: int) -> list[str]:
    """Some paths of each entry of the top level, in the order they have."""
    groups: dict[str, list[int]] = {}
    for index, path in enumerate(paths):
        groups.setdefault(path.partition("/")[0], []).append(index)
    taken: list[int] = []
    depth = 0
    while len(taken) < count:
        row = [group[depth] for group in groups.values() if depth < len(group)]
        taken += row[: count - len(taken)]
        depth += 1
    return [paths[index] for index in sorted(taken)]
