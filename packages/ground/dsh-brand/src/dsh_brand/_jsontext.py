"""The slow, exact ways of writing and reading JSON text, for what the C encoder cannot do."""

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from json import JSONDecodeError
from json.decoder import py_scanstring as scanstring  # type: ignore[attr-defined]  # not in the stubs
from typing import Final, NoReturn

import msgspec

_ODD_NUMBER: Final = re.compile(rb"(?:^|[:\[,])-?\d+(?:\.0(?!\d)|(?:\.\d+)?e[-+]?\d)")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_WORDS: Final = {"n": ("null", None), "t": ("true", True), "f": ("false", False)}
_FRAGMENT: Final = msgspec.json.Encoder()
_odd_floats = False


def is_odd(value: float) -> bool:
    """True where the C encoder and JavaScript print a float differently."""
    size = abs(value)
    return size >= 2**53 or 1e-6 <= size < 1e-5  # the two thresholds


def note_odd_float() -> None:
    """Make the encoder look for floats it prints differently; most processes never meet one."""
    global _odd_floats  # one latch a process: looking at every text would cost more
    _odd_floats = True


def needs_care(text: bytes) -> bool:
    """True if the C encoder's text may hold a number that JavaScript prints differently."""
    return _odd_floats and _ODD_NUMBER.search(text) is not None


def write(value: object) -> bytes:
    """Text of a frozen JSON value."""
    try:
        text = _FRAGMENT.encode(value)
    except (UnicodeEncodeError, RecursionError):
        return write_exact(value)
    return write_exact(value) if needs_care(text) else text


def write_exact(value: object) -> bytes:
    """As `write`, piece by piece, to any depth."""
    out: list[str] = []
    stack: list[Iterator[object]] = [iter((value,))]
    closers: list[str] = []
    while stack:
        for item in stack[-1]:
            if isinstance(item, _Piece):
                out.append(item)
            elif isinstance(item, dict):
                out.append("{")
                stack.append(_members(item))
                closers.append("}")
                break
            elif isinstance(item, list | tuple):
                out.append("[")
                stack.append(_items(item))
                closers.append("]")
                break
            else:
                out.append(_scalar(item))
        else:
            stack.pop()
            if closers:
                out.append(closers.pop())
    return "".join(out).encode()


class _Piece(str):
    """Text that goes out as it is."""

    __slots__ = ()


_COMMA: Final = _Piece(",")


def _members(value: dict[str, object]) -> Iterator[object]:
    for index, (key, item) in enumerate(value.items()):
        yield _Piece(f"{',' if index else ''}{_string(key)}:")
        yield item


def _items(value: list[object] | tuple[object, ...]) -> Iterator[object]:
    for index, item in enumerate(value):
        if index:
            yield _COMMA
        yield item


def _scalar(value: object) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, float):
        return js_number(value)
    return _FRAGMENT.encode(value).decode()


def _string(value: str) -> str:
    try:
        return _FRAGMENT.encode(value).decode()
    except UnicodeEncodeError:
        return _string_with_halves(value)


def _string_with_halves(value: str) -> str:
    parts = re.split("([\ud800-\udfff])", value)
    texts = (
        f"\\u{ord(part):04x}" if index % 2 else _FRAGMENT.encode(part).decode()[1:-1]
        for index, part in enumerate(parts)
    )
    return f'"{"".join(texts)}"'


def js_number(value: float) -> str:
    """The shortest decimal, in the notation JavaScript chooses."""
    if not math.isfinite(value):
        raise ValueError(f"{value!r} is no JSON number")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)  # a finite float: never one of Decimal's words
    lead = "-" if sign else ""
    if value == 0:
        return "0"
    if 0 < point <= 21:
        return lead + (
            text.ljust(point, "0") if len(text) <= point else f"{text[:point]}.{text[point:]}"
        )
    if -6 < point <= 0:
        return f"{lead}0.{'0' * -point}{text}"
    mantissa = text[0] + (f".{text[1:]}" if len(text) > 1 else "")
    return f"{lead}{mantissa}e{point - 1:+d}"


def double_of(value: float) -> float:
    """`value` as JavaScript reads the literal: rounded to a double, infinite beyond its range."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def integer_of(literal: str) -> int:
    """The value of an integer literal.

    Raises:
        ValueError: It is longer than Python reads; other readers have such limits too.
    """
    try:
        return int(literal)
    except ValueError:
        # Python's own words advise to lift the limit, which whoever sent the text cannot do.
        reason = f"integer {literal[:20]}... has {len(literal)} characters: send it as a string"
        raise ValueError(reason) from None


def refuse_constant(word: str) -> NoReturn:
    """Refuse the words that Python's reader takes and JSON does not have."""
    raise ValueError(f"{word} is no JSON value")


def read_deep(text: str) -> object:
    """Read text nested deeper than the interpreter's own reader goes."""
    return _Reader(text).read()


class _Reader:
    """A reader with a stack of its own."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def read(self) -> object:
        root: list[object] = []
        stack: list[list[object] | dict[str, object]] = [root]
        self.value(stack, None)
        while len(stack) > 1:
            self.step(stack)
        self.space()
        if self.at != len(self.text):
            self.fail("extra data")
        return root[0]

    def step(self, stack: list[list[object] | dict[str, object]]) -> None:
        top = stack[-1]
        self.space()
        if self.take("}" if isinstance(top, dict) else "]"):
            stack.pop()
            return
        if top and not self.take(","):
            self.fail("',' expected")
        self.space()
        self.value(stack, self.key() if isinstance(top, dict) else None)

    def key(self) -> str:
        if not self.take('"'):
            self.fail("a name expected")
        name = self.string()
        self.space()
        if not self.take(":"):
            self.fail("':' expected")
        return name

    def value(self, stack: list[list[object] | dict[str, object]], key: str | None) -> None:
        self.space()
        top = stack[-1]
        item: object
        if self.take("{"):
            item = {}
            stack.append(item)
        elif self.take("["):
            item = []
            stack.append(item)
        else:
            item = self.scalar()
        if isinstance(top, dict):
            top[key or ""] = item
        else:
            top.append(item)

    def scalar(self) -> object:
        if self.take('"'):
            return self.string()
        word, value = _WORDS.get(self.text[self.at : self.at + 1], ("", None))
        if word and self.text.startswith(word, self.at):
            self.at += len(word)
            return value
        match = _NUMBER.match(self.text, self.at)
        if match is None:
            self.fail("a value expected")
        self.at = match.end()
        fraction, exponent = match.groups()
        return float(match[0]) if fraction or exponent else integer_of(match[0])

    def string(self) -> str:
        value, self.at = scanstring(self.text, self.at)
        return str(value)

    def space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        if match is not None:
            self.at = match.end()

    def take(self, char: str) -> bool:
        if not self.text.startswith(char, self.at):
            return False
        self.at += 1
        return True

    def fail(self, what: str) -> NoReturn:
        raise JSONDecodeError(what, self.text, self.at)
