"""Finding files by glob, as ripgrep understands globs. Blocking; run in worker threads."""

import os
import re
from collections.abc import Callable, Iterator
from typing import Final

from .errors import SearchError

VERSION_CONTROL: Final = frozenset({".git", ".svn", ".hg", ".bzr", ".jj", ".sl"})


def find(pattern: str, root: str, check: Callable[[], None]) -> tuple[str, ...]:
    """Files below `root` that match, oldest change first, then by path.

    Raises:
        SearchError: The pattern is malformed.
    """
    matches = compile_glob(pattern)
    found: list[tuple[int, str]] = []
    for directory, prefix in _directories(root):
        check()
        found.extend(
            (_changed(entry), entry.path)
            for entry in directory
            if _is_file(entry) and matches.fullmatch(prefix + entry.name)
        )
    return tuple(path for _, path in sorted(found))


def _directories(root: str) -> Iterator[tuple[list["os.DirEntry[str]"], str]]:
    pending = [(root, "")]
    while pending:
        path, prefix = pending.pop()
        try:
            with os.scandir(path) as scan:
                entries = list(scan)
        except OSError:
            continue  # what may not be looked into holds nothing to find
        yield entries, prefix
        # Links are not followed: they may lead out of the tree, or back into it.
        pending.extend(
            (entry.path, f"{prefix}{entry.name}/")
            for entry in entries
            if entry.name not in VERSION_CONTROL and entry.is_dir(follow_symlinks=False)
        )


def _is_file(entry: "os.DirEntry[str]") -> bool:
    return entry.is_file(follow_symlinks=False)


def _changed(entry: "os.DirEntry[str]") -> int:
    try:
        return entry.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


def compile_glob(pattern: str) -> re.Pattern[str]:
    """A glob as a pattern for relative paths.

    ``*`` and ``?`` stay within a name, ``**`` crosses directories, ``[a-z]``, ``[!a]`` and
    ``{a,b}`` work as usual, a backslash makes the next character plain. Without a ``/`` the pattern
    matches names at any depth.

    Raises:
        SearchError: Brackets or braces are not closed, or the pattern is empty.
    """
    if not pattern.strip("/"):
        raise _malformed(pattern, "it names nothing")
    anchored = "/" in pattern.rstrip("/")
    body = _Translator(pattern.lstrip("/")).run()
    try:
        return re.compile(body if anchored else f"(?:.*/)?{body}", re.DOTALL)
    except re.error as error:
        raise _malformed(pattern, str(error)) from error


class _Translator:
    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._position = 0
        self._depth = 0

    def run(self) -> str:
        parts: list[str] = []
        while self._position < len(self._pattern):
            parts.append(self._next())
        if self._depth:
            raise _malformed(self._pattern, "a brace is not closed")
        return "".join(parts)

    def _next(self) -> str:
        rest = self._pattern[self._position :]
        at_start = self._position == 0 or self._pattern[self._position - 1] == "/"
        for glob, expression in (("**/", "(?:.*/)?"), ("**", ".*")):
            if at_start and rest.startswith(glob):
                self._position += len(glob)
                return expression
        self._position += 1
        match rest[0]:
            case "*":
                return "[^/]*"
            case "?":
                return "[^/]"
            case "[":
                return self._class(rest)
            case "{":
                self._depth += 1
                return "(?:"
            case "}" if self._depth:
                self._depth -= 1
                return ")"
            case "," if self._depth:
                return "|"
            case "\\" if len(rest) > 1:
                self._position += 1
                return re.escape(rest[1])
            case plain:
                return re.escape(plain)

    def _class(self, rest: str) -> str:
        # The first character after the bracket is a member even if it is a bracket.
        start = 2 if rest[1:2] in ("!", "^") else 1
        end = rest.find("]", start + 1)
        if end < 0:
            raise _malformed(self._pattern, "a bracket is not closed")
        self._position += end
        members = re.sub(r"([\\\[\]^&~|])", r"\\\1", rest[start:end])
        return f"(?!/)[{'^' if start == 2 else ''}{members}]"


def _malformed(pattern: str, reason: str) -> SearchError:
    return SearchError(f"the pattern {pattern!r} is malformed: {reason}", "SEARCH_INVALID_PATTERN")
