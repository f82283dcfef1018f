"""A holder for credentials that never shows them."""

from typing import Final, final

from typing_extensions import override

REDACTED: Final = "[redacted]"


@final
class Secret:
    """A credential; only `reveal()` gives it out, every other rendering shows ``[redacted]``."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The credential itself; keep the returned string out of attributes, messages and logs."""
        return self._value

    def redact(self, text: str) -> str:
        """`text` with each occurrence of the credential replaced."""
        return text.replace(self._value, REDACTED) if self._value else text

    @override
    def __repr__(self) -> str:
        return REDACTED

    @override
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    @override
    def __hash__(self) -> int:
        return hash(self._value)

    @override
    def __reduce__(self) -> str:
        raise TypeError("a Secret is not pickled: read the credential again where it is needed")
