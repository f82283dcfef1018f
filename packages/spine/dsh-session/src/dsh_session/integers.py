"""What counts as an integer in a log: never a boolean, within what a double holds exactly."""

from typing import Final

MAX_SAFE_INT: Final = 2**53 - 1


def as_integer(value: object) -> int | None:
    """`value` as a safe integer, or `None` if it is none; ``3.0`` is 3, ``-0.0`` is none."""
    if type(value) is int:
        return value if -MAX_SAFE_INT <= value <= MAX_SAFE_INT else None
    if type(value) is float and value.is_integer() and str(value) != "-0.0":
        return int(value) if abs(value) <= MAX_SAFE_INT else None
    return None


def is_natural(value: object) -> bool:
    """True for a plain safe integer that is not negative."""
    return type(value) is int and 0 <= value <= MAX_SAFE_INT
