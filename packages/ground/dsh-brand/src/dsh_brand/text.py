"""Text as log and wire count it: UTF-16 units, JavaScript's white space, halves of pairs."""

import re
from typing import Final

_SPACES: Final = (
    "\t\n\x0b\x0c\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_HALF: Final = re.compile("[\ud800-\udfff]")
_PAIR: Final = re.compile("([\ud800-\udbff])([\udc00-\udfff])")


def utf16_len(text: str) -> int:
    """Length in UTF-16 code units, the unit of prices and caps in shared logs."""
    if text.isascii():
        return len(text)
    return len(text) + sum(1 for char in text if char > "\uffff")


def utf16_key(text: str) -> bytes:
    """Sort key that orders like UTF-16 code units (code points order differently above U+FFFF)."""
    return text.encode("utf-16-be", "surrogatepass")


def js_trim(text: str) -> str:
    """Strip what JavaScript's ``trim`` strips; `str.strip` differs in both directions."""
    return text.strip(_SPACES)


def is_blank(text: str) -> bool:
    """True if nothing is left of `text` after `js_trim`."""
    return not text.strip(_SPACES)


def has_surrogates(text: str) -> bool:
    """True if `text` holds a surrogate and so cannot be encoded as UTF-8."""
    return not text.isascii() and _HALF.search(text) is not None


def pair_surrogates(text: str) -> str:
    """Join each high half with the low half behind it; halves without a partner stay."""
    if not has_surrogates(text):
        return text
    return _PAIR.sub(_join, text)


def scrub_surrogates(text: str) -> str:
    """`pair_surrogates`, then U+FFFD for each half that stays alone: the result encodes."""
    if not has_surrogates(text):
        return text
    return _HALF.sub("\ufffd", _PAIR.sub(_join, text))


def _join(match: re.Match[str]) -> str:
    high, low = match.groups()
    return chr(0x10000 + ((ord(high) - 0xD800) << 10) + (ord(low) - 0xDC00))
