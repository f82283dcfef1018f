"""Storage form of cited seqs: runs of three or more consecutive numbers become pairs."""

from collections.abc import Sequence
from itertools import pairwise

from dsh_session.integers import MAX_SAFE_INT, as_integer


def encode_seq_ranges(seqs: Sequence[int]) -> list[int | list[int]]:
    """Write each run of three or more consecutive numbers as ``[start, end]``.

    A list that is not strictly increasing stays as it is.
    """
    if any(right <= left for left, right in pairwise(seqs)):
        return list(seqs)
    out: list[int | list[int]] = []
    start = 0
    while start < len(seqs):
        end = start
        while end + 1 < len(seqs) and seqs[end + 1] == seqs[end] + 1:
            end += 1
        out.extend([[seqs[start], seqs[end]]] if end - start >= 2 else seqs[start : end + 1])
        start = end + 1
    return out


def decode_seq_ranges(
    stored: object, seq: int = MAX_SAFE_INT, *, ranges: bool = True
) -> tuple[int, ...]:
    """Expand the storage form.

    Args:
        stored: The list as read: integers and pairs.
        seq: Seq of the event that cites; every member is smaller.
        ranges: Accept pairs.

    Raises:
        ValueError: Not a non-empty list of distinct integers in range, or a list with a pair that
            does not increase strictly.
    """
    if not isinstance(stored, list | tuple) or not stored:
        raise ValueError(f"cited seqs must be a non-empty list, not {stored!r}")
    out: list[int] = []
    ranged = False
    for item in stored:
        if ranges and isinstance(item, list | tuple):
            ranged = True
            out.extend(_expand(item, seq))
        else:
            out.append(_member(item, seq))
    if ranged and any(right <= left for left, right in pairwise(out)):
        raise ValueError("cited seqs with a range must increase strictly")
    if len(set(out)) != len(out):
        raise ValueError("cited seqs must be distinct")
    return tuple(out)


def _expand(pair: Sequence[object], seq: int) -> range:
    if len(pair) != 2:
        raise ValueError(f"a range of seqs is [start, end], not {list(pair)!r}")
    start, end = _member(pair[0], seq), _member(pair[1], seq)
    if start > end:
        raise ValueError(f"range [{start}, {end}] of seqs runs backwards")
    return range(start, end + 1)


def _member(value: object, seq: int) -> int:
    number = as_integer(value)
    if number is None or not 0 <= number < seq:
        raise ValueError(f"cited seq {value!r} is no earlier seq than {seq}")
    return number
