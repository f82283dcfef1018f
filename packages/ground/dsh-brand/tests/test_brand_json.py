"""Lossless JSON: what is accepted, how it is written, that nothing changes afterwards."""

import copy
import json
import math
import pickle
import sys
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_brand import (
    FrozenDict,
    FrozenList,
    NotJsonError,
    decode_json,
    encode_json,
    freeze_json,
    is_json,
    json_equal,
    thaw_json,
)

DEEP = b"[" * 3000 + b'{"a":1}' + b"]" * 3000

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False).filter(
        lambda x: x != 0 or math.copysign(1, x) > 0
    )
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(values)
def test_S23_S26_json_survives_a_round_trip(value: object) -> None:
    frozen = freeze_json(value)
    assert json_equal(decode_json(encode_json(frozen)), frozen)
    assert json_equal(thaw_json(frozen), frozen)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_S29_numbers_read_back_as_the_same_double(number: float) -> None:
    if number != 0:
        assert float(json.loads(encode_json(number))) == number


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"), (0.1, "0.1"), (1e-5, "0.00001"), (1e-6, "0.000001"), (1e-7, "1e-7"), (1e16, "10000000000000000"), (2.0**53, "9007199254740992"),
        (123456789012345680000.0, "123456789012345680000"), (1e21, "1e+21"), (1.5e300, "1.5e+300"), (5e-324, "5e-324"),
        (-2.5, "-2.5"),
    ],
)  # fmt: skip
def test_S29_L5_numbers_are_written_as_javascript_prints_them(number: float, text: str) -> None:
    assert encode_json([number]) == f"[{text}]".encode()
    assert encode_json(number) == text.encode()


@pytest.mark.parametrize(
    "value",
    [
        math.nan, math.inf, -0.0, 2**53, b"x", {1}, object(), {1: 2}, {"a": [math.nan]},
        pytest.param(type("S", (str,), {})("x"), id="str-subclass"),
        pytest.param(type("D", (dict,), {})(), id="dict-subclass"),
    ],
)  # fmt: skip
def test_S24_what_json_cannot_hold_is_refused(value: object) -> None:
    assert not is_json(value)


def test_S24_a_refusal_names_the_place() -> None:
    with pytest.raises(NotJsonError, match=r"items\[1\]\.when") as caught:
        freeze_json({"items": [0, {"when": b""}]})
    assert caught.value.path == "items[1].when"
    assert caught.value.code == "NOT_JSON"


def test_S24_a_cycle_is_refused() -> None:
    cycle: list[object] = []
    cycle.append(cycle)
    with pytest.raises(NotJsonError, match="cyclic"):
        freeze_json(cycle)


def test_S25_a_shared_value_is_stored_twice() -> None:
    shared = [1]
    assert encode_json(freeze_json([shared, shared])) == b"[[1],[1]]"


def test_S27_three_thousand_levels_are_read_frozen_and_written() -> None:
    frozen = freeze_json(decode_json(DEEP))
    assert encode_json(frozen) == DEEP
    assert json_equal(frozen, decode_json(DEEP))


def test_S26_half_pairs_are_kept_and_escaped() -> None:
    text = decode_json(b'"a\\ud83d"')
    assert text == "a\ud83d"
    assert encode_json(text) == b'"a\\ud83d"'


@pytest.mark.parametrize(
    "text", [b"NaN", b"[Infinity]", b"", b"[1,]", b"[" * 5000, b'{"a" 1}', b"[1] x"]
)
def test_S29_broken_text_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode_json(text)


def test_S29_large_integers_take_double_semantics_on_load() -> None:
    assert freeze_json(decode_json(b"[9007199254740993, -0]"), loading=True) == [
        9007199254740992,
        0,
    ]


def test_S30_equality_is_that_of_the_texts() -> None:
    assert not json_equal(1, True)
    assert json_equal([1, {"a": 1, "b": 2}], [1.0, {"b": 2, "a": 1}])
    assert not json_equal({"a": None}, {})


def test_S36_frozen_values_refuse_changes() -> None:
    frozen = freeze_json({"a": [1]})
    assert isinstance(frozen, FrozenDict)
    inner = frozen["a"]
    assert isinstance(inner, FrozenList)
    changes: list[Callable[[], object]] = [
        lambda: frozen.update(a=1), lambda: frozen.pop("a"), lambda: inner.append(2), lambda: inner.sort(),
        lambda: frozen.__setitem__("b", 1), lambda: inner.__setitem__(0, 2), lambda: type(inner)([1]),
    ]  # fmt: skip
    for change in changes:
        with pytest.raises(TypeError, match="frozen"):
            change()
    assert frozen == {"a": [1]}
    assert copy.deepcopy(frozen) is frozen
    assert pickle.loads(pickle.dumps(frozen)) == frozen


def test_S31_a_frozen_value_is_detached_from_its_source() -> None:
    source = {"a": [1]}
    frozen = freeze_json(source)
    source["a"].append(2)
    assert frozen == {"a": [1]}
    assert freeze_json(frozen) is frozen


@pytest.mark.parametrize("shape", ["{}", "[{}]", '{{"a":{}}}', "[" * 3_000 + "{}" + "]" * 3_000])
def test_an_integer_longer_than_readers_take_is_refused_in_plain_words(shape: str) -> None:
    with pytest.raises(ValueError, match=r"^integer -9{19}\.\.\. has 5001 characters: send it"):
        decode_json(shape.format("-" + "9" * 5_000))


def test_S29_an_infinite_number_is_never_stored() -> None:
    with pytest.raises(NotJsonError, match="number inf"):
        freeze_json(decode_json("9" * 311), loading=True)


def test_S29_the_largest_double_is_read_from_all_its_digits() -> None:
    largest = int(sys.float_info.max)
    assert decode_json(f"[-{largest}]") == [-largest]
    assert freeze_json(decode_json(f"-{largest}"), loading=True) == -sys.float_info.max


def test_S24_a_huge_integer_is_refused_in_plain_words() -> None:
    with pytest.raises(NotJsonError, match=r"at 'a': integer of 20001 bits is beyond 2\^53-1"):
        freeze_json({"a": 1 << 20_000})
