"""Text that grows, and half characters that wait for their partner (L125)."""

from dsh_brand import scrub_surrogates


class GrowingText:
    """Text in pieces; each piece that comes out encodes, and together they are the text."""

    __slots__ = ("_half", "_parts")

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._half = ""

    def add(self, text: str) -> str:
        """Take a piece in; what of it can be sent on now."""
        if self._half or not text.isascii():
            text = self._joined(text)
        if text:
            self._parts.append(text)
        return text

    def rest(self) -> str:
        """What is left to send at the end: U+FFFD for a half whose partner never came."""
        if not self._half:
            return ""
        self._half = ""
        self._parts.append("\ufffd")
        return "\ufffd"

    def text(self) -> str:
        """All of it."""
        return "".join(self._parts)

    def _joined(self, text: str) -> str:
        """A piece with the half before it and without a half at its end."""
        text = self._half + text
        self._half = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return scrub_surrogates(text[:-1] if self._half else text)
