"""How the patterns of rules match: strictly where they allow, widely where they restrict.

A text can be read in more than one way: `git log; rm -r x` begins with `git `, and `src/../x` with
`src/`. So a rule that allows is for plain texts only, and a rule that denies or asks is tried on
every command of a command line and on every spelling of a path. What a program computes when it
runs, no pattern sees.
"""

import posixpath
import re
import unicodedata
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import chain
from typing import Final

_MAX_NAME: Final = 255
"""Longer ones name no file, and as patterns they take long to try."""
_OPERATORS: Final = frozenset(";&|<>$`(){}")
"""What a shell reads as more than a word."""
_CLASS: Final = re.compile(r"\[!?\]?[^\]]*\]")
_SEPARATORS: Final = re.compile(r"[\s/=:,]")
_QUOTES: Final = re.compile(r"[\\'\"]")
_URL: Final = re.compile(r"https?://([^/?#\\]*)")

_COMMAND_NAMES: Final = frozenset({"command", "cmd", "script"})
_PATH_NAMES: Final = ("path", "file", "dir", "directory", "cwd")
_JOINTS: Final = re.compile(r"([;&|<>(){}$`\n\r])")
_ASSIGNMENT: Final = re.compile(r"\w+(\[[^]]*\])?\+?=")
_BRACES: Final = re.compile(r"\{([^{}\s]*)\}")
_RANGE: Final = re.compile(r"\{(\w)\.\.\w\}")
_MAX_EXPANSIONS: Final = 50
_MAX_EXPANDED: Final = 10_000
_WORDS: Final = re.compile(r"([\s;&|<>()]+)")
_KEYWORDS: Final = frozenset(
    ("!", "if", "then", "else", "elif", "do", "while", "until", "time", "coproc")
)
_WRAPPERS: Final = frozenset(
    (
        *("bash", "busybox", "dash", "eval", "sh", "zsh", "builtin", "command", "exec"),
        *("doas", "su", "sudo", "chroot", "env", "find", "flock", "ionice", "nice", "nohup"),
        *("setsid", "stdbuf", "timeout", "watch", "xargs"),
    )
)
"""Programs that run what stands somewhere behind them."""
_MAX_WORDS: Final = 200
"""Of what a wrapper runs: a long command line must not take long to judge."""


def allows(pattern: str, text: str) -> bool:
    """Whether a pattern of a rule that allows matches.

    What stands for its wildcards holds no control characters, no way up (`..`) and, but in web
    addresses, no operators of a shell. A `*` alone matches everything.
    """
    if pattern == "*":
        return True
    if not fnmatchcase(text, pattern):
        return False
    literal = _CLASS.sub("", pattern)
    if _climbs(text) > _SEPARATORS.split(literal).count(".."):
        return False
    address = _URL.match(pattern)
    if address is not None and not _same_host(address, text):
        return False
    return all(
        text.count(char) <= literal.count(char)
        for char in set(text)
        if not char.isprintable() or (char in _OPERATORS and address is None)
    )


def restricts(pattern: str, name: str, text: str, cwd: str | None) -> bool:
    """Whether a pattern of a rule that denies or asks matches an argument.

    Args:
        pattern: Of the rule.
        name: Of the argument; tells commands and paths.
        text: Its value.
        cwd: Where relative paths start, if known.
    """
    name = name.lower()
    if name in _COMMAND_NAMES:
        line = _without_braces(text.replace("\\\n", ""))
        if line is None:
            return True
        program = pattern.partition(" ")[0]
        readings = chain((text,), _commands(line, program))
        return any(fnmatchcase(reading, pattern) for reading in readings)
    if name.endswith(_PATH_NAMES):
        # On many systems capitals and forms of accents make no other file.
        pattern = _folded(pattern)
        return any(fnmatchcase(_folded(spelling), pattern) for spelling in _spellings(text, cwd))
    return fnmatchcase(text, pattern)


def _climbs(text: str) -> int:
    """How many parts of paths in it a program or a shell may read as `..`."""
    return max(
        sum(map(_is_way_up, _SEPARATORS.split(spelling)))
        for spelling in (text.replace("\\", "/"), _QUOTES.sub("", text))
    )


def _is_way_up(part: str) -> bool:
    # A shell expands a pattern to a name with a dot only where the dot is written.
    return part.startswith(".") and (len(part) > _MAX_NAME or fnmatchcase("..", part))


def _same_host(pattern: re.Match[str], text: str) -> bool:
    address = _URL.match(text)
    if address is None:
        return False
    return fnmatchcase(address[1], pattern[1]) and address[1].count("@") <= pattern[1].count("@")


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", path).casefold()


def _commands(line: str, sought: str) -> Iterator[str]:
    """Every simple command of a command line, without quotes; some of these are none.

    Args:
        line: As a shell gets it.
        sought: A program; where a word is a pattern that may stand for it, it does.
    """
    joint = ""
    for part in _JOINTS.split(line):
        if _JOINTS.fullmatch(part):
            joint = part
            continue
        words = _QUOTES.sub("", part).split()
        yield " ".join(words)
        yield from _runs(words, sought)
        if joint in ("<", ">", "&"):
            yield from _runs(words[1:], sought)  # the first one names what it is redirected to


def _without_braces(line: str) -> str | None:
    """`su{do,}` as a shell expands it; `None` if a word has more braces than are looked into."""
    words = [_expanded(word) if "{" in word else word for word in _WORDS.split(line)]
    return None if None in words else "".join(word for word in words if word is not None)


def _expanded(word: str) -> str | None:
    word = _RANGE.sub(r"\1", word)
    for _ in range(_MAX_EXPANSIONS):
        found = next((each for each in _BRACES.finditer(word) if "," in each[1]), None)
        if found is None:
            return word
        start = word.rfind(" ", 0, found.start()) + 1
        end = word.find(" ", found.end())
        end = len(word) if end < 0 else end
        choices = found[1].split(",")
        if len(choices) * (end - start) > _MAX_EXPANDED:
            return None
        before, after = word[start : found.start()], word[found.end() : end]
        words = " ".join(f"{before}{choice}{after}" for choice in choices)
        word = f"{word[:start]}{words}{word[end:]}"
    return None


def _runs(words: list[str], sought: str) -> Iterator[str]:
    """What the words run: behind assignments and keywords, and anything behind a wrapper."""
    wrapped = False
    for start, word in enumerate(words):
        program = posixpath.basename(word)
        rest = " ".join(words[start + 1 : start + _MAX_WORDS])
        stands_for = len(program) <= _MAX_NAME and fnmatchcase(sought, program)
        for spelled in {word, program, sought if stands_for else program}:
            # The space lets `sudo *` match a `sudo` whose arguments were split off.
            yield f"{spelled} {rest}"
            yield f"{spelled} {rest}".rstrip()
        wrapped = wrapped or program in _WRAPPERS
        if not wrapped and program not in _KEYWORDS and not _ASSIGNMENT.match(word):
            return


def _spellings(path: str, cwd: str | None) -> Iterator[str]:
    yield path
    yield posixpath.normpath(path)
    if cwd is not None:
        absolute = posixpath.normpath(posixpath.join(cwd, path))
        yield absolute
        yield posixpath.relpath(absolute, cwd)
