"""A small share of the stream fuzzer; `tests/fuzz_streams.py` runs as many bodies as wanted."""

import importlib.util
import random
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st


def _load() -> ModuleType:
    path = Path(__file__).with_name("fuzz_streams.py")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fuzz = _load()
BODIES: Sequence[bytes] = fuzz.recordings()


def test_undamaged_recordings_end_well_in_one_of_the_dialects() -> None:
    ends = [{fuzz.judge([body], fuzz.chat), fuzz.judge([body], fuzz.messages)} for body in BODIES]
    assert sum(bool({"stop", "tool-calls", "max-tokens"} & each) for each in ends) >= 5


@pytest.mark.parametrize("seed", range(4))
def test_L112_every_damaged_body_ends_exactly_once(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(500):
        reads = fuzz.cut(fuzz.mutated(chance.choice(BODIES), chance, BODIES), chance)
        fuzz.judge(reads, fuzz.chat)
        fuzz.judge(reads, fuzz.messages)


_TOKEN = st.one_of(st.sampled_from(fuzz._TOKENS), st.binary(max_size=12), st.sampled_from(BODIES))


@given(tokens=st.lists(_TOKEN, max_size=8), seed=st.integers(0, 2**32))
def test_L112_any_bytes_at_all_end_exactly_once(tokens: Sequence[bytes], seed: int) -> None:
    reads = fuzz.cut(b"".join(tokens), random.Random(seed))
    fuzz.judge(reads, fuzz.chat)
    fuzz.judge(reads, fuzz.messages)


async def test_L64_damaged_bodies_over_http_end_in_exactly_one_finish() -> None:
    await fuzz.over_http(60, random.Random(3), BODIES)
