"""Frames: whole, cut off and damaged."""

import os
from io import BytesIO
from typing import NamedTuple

import pytest

from dsh_session_jsonl import zstd_frames
from dsh_session_jsonl.zstd_frames import BadFrameError, encode_frame

PARTS = [b"header\n", os.urandom(300_000), b"a" * 500_000, b"", b'{"x":1}\n' * 40]
DATA = b"".join(map(encode_frame, PARTS))


class Frame(NamedTuple):
    start: int
    end: int
    complete: bool
    text: bytes


def frames(data: bytes) -> list[Frame]:
    return [
        Frame(frame.start, frame.end, frame.complete, b"".join(frame.text))
        for frame in zstd_frames.frames(BytesIO(data))
    ]


def test_S141_frames_are_walked_one_by_one() -> None:
    found = list(frames(DATA))
    assert [frame.text for frame in found] == PARTS
    assert all(frame.complete for frame in found)
    assert [frame.start for frame in found[1:]] == [frame.end for frame in found[:-1]]


def test_S141_a_cut_at_any_byte_is_an_incomplete_last_frame() -> None:
    last = len(DATA) - len(encode_frame(PARTS[-1]))
    for cut in range(last + 1, len(DATA)):
        found = list(frames(DATA[:cut]))
        assert [frame.text for frame in found[:-1]] == PARTS[:-1]
        assert not found[-1].complete
        assert PARTS[-1].startswith(found[-1].text)


def test_S141_a_flipped_bit_is_damage_wherever_it_is() -> None:
    data = b"".join(map(encode_frame, [b"header\n", b'{"x":1}\n' * 40, b'{"y":1}\n' * 40]))
    second = len(encode_frame(b"header\n"))
    third = second + len(encode_frame(PARTS[-1]))
    for position in range(second, third):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(BadFrameError):
                _ = [frame.text for frame in frames(bytes(flipped)) if _changed(frame.text)]


def _changed(text: bytes) -> bool:
    # A bit that nothing depends on (a reserved or size hint) may leave the text as it was.
    if text in {b"header\n", b'{"x":1}\n' * 40}:
        return False
    if text == b'{"y":1}\n' * 40:
        raise BadFrameError("the text came through unharmed")
    return True


def test_S141_zeros_behind_the_last_frame_are_a_torn_tail() -> None:
    found = list(frames(DATA + bytes(4096)))
    assert [frame.text for frame in found] == [*PARTS, b""]
    assert not found[-1].complete


def test_S141_foreign_bytes_are_no_torn_tail() -> None:
    with pytest.raises(BadFrameError, match="does not begin"):
        list(frames(DATA + b"{}\n"))
