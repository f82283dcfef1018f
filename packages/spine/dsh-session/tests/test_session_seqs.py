"""The storage form of cited seqs (S139)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_session import decode_seq_ranges, encode_seq_ranges

SEQS = st.lists(st.integers(0, 40), min_size=1, unique=True)


@given(st.one_of(SEQS, SEQS.map(sorted)))
def test_S139_ranges_survive_a_round_trip(seqs: list[int]) -> None:
    assert decode_seq_ranges(encode_seq_ranges(seqs), 41) == tuple(seqs)


@pytest.mark.parametrize(
    ("seqs", "stored"),
    [
        ([3, 5, 6, 7], [3, [5, 7]]),
        ([1, 2], [1, 2]),
        ([0, 1, 2, 4, 5], [[0, 2], 4, 5]),
        ([3, 2, 1], [3, 2, 1]),
        ([5, 6, 7, 1], [5, 6, 7, 1]),
    ],
)
def test_S139_runs_of_three_become_ranges(seqs: list[int], stored: list[object]) -> None:
    assert encode_seq_ranges(seqs) == stored


@pytest.mark.parametrize(
    "stored",
    [
        *([], "x", None, [1, 1], [[1]], [[3, 1]], [[1, 3], 2], [5, [1, 3]], [10], [[8, 10]]),
        *([True], [-1], [1.5], [[0, 1, 2]], [[0, True]]),
    ],
)
def test_S139_broken_lists_are_refused(stored: object) -> None:
    with pytest.raises(ValueError, match=r"seq|range"):
        decode_seq_ranges(stored, 10)


def test_S139_a_pair_of_two_is_read_and_order_is_kept() -> None:
    assert decode_seq_ranges([[1, 2]], 10) == (1, 2)
    assert decode_seq_ranges([4, 2.0], 10) == (4, 2)
