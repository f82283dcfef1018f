"""Open wire types: unknown fields and tags go through, wrong shapes are named."""

import pytest
from typing_extensions import override

from dsh_brand import (
    HarnessError,
    Json,
    JsonObject,
    OpenUnion,
    Secret,
    Wire,
    decode,
    encode,
    error_chain,
    from_json,
    is_blank,
    js_trim,
    pair_surrogates,
    replace,
    scrub_surrogates,
    to_json,
    utf16_key,
    utf16_len,
)
from dsh_brand.wire import UnreadArray


class Part(Wire, frozen=True, tag_field="type"):
    """Base of the parts."""


class Text(Part, frozen=True, tag="text"):
    text: str


class Call(Part, frozen=True, tag="call"):
    call_id: str


class OtherPart(Part, frozen=True, tag=False):
    """Kept whole."""


parts = OpenUnion(Part, OtherPart)
parts.register(Text)
parts.register(Call)


class Letter(Wire, frozen=True):
    id: str
    parts: tuple[Text | Call, ...] = ()
    meta: Json | None = None
    options: JsonObject | None = None


@pytest.mark.parametrize(
    "text",
    [
        b'{"id":"a","parts":[{"type":"text","text":"x"},{"type":"call","callId":"c"}]}',
        b'{"id":"a","parts":[{"type":"text","text":"x","zz":[1]},{"type":"img","n":{"k":1e+21}}],"more":true}',
        b'{"id":"a","parts":[{"type":"text","text":"half \\ud83d"}]}',
        b'{"id":"a","meta":{"a":[1,2.5]},"options":{"q":null}}',
        b'{"id":"a","$extra$":{"k":1}}',
        b'{"id":"a","meta":' + b"[" * 3000 + b"]" * 3000 + b"}",
    ],
)
def test_L2_S174_what_was_read_is_written_back(text: bytes) -> None:
    letter = decode(Letter, text)
    assert encode(letter) == text
    assert decode(Letter, encode(letter)).id == "a"


def test_L2_an_unknown_tag_becomes_the_opaque_member() -> None:
    part = decode(Part, b'{"type":"img","n":1}')
    assert isinstance(part, OtherPart)
    assert part.extra == {"type": "img", "n": 1}


def test_L2_a_class_registered_later_is_found() -> None:
    class Late(Part, frozen=True, tag="late"):
        n: int

    parts.register(Late)
    late: object = decode(Letter, b'{"id":"a","parts":[{"type":"late","n":1}]}').parts[0]
    assert late == Late(n=1)


def test_L2_only_tagged_subclasses_are_registered() -> None:
    with pytest.raises(TypeError, match="no tagged subclass"):
        parts.register(Letter)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"id":1}', r"Expected `str`, got `int` - at `\$\.id`"),
        (b'{"id":"a","parts":[{"type":"text"}]}', r"missing 'text' - at `\$\.parts\[0\]`"),
        (b'{"id":"a","parts":{}}', r"an array was expected, got dict - at `\$\.parts`"),
        (b'{"id":"a","options":[]}', r"an object was expected"),
        (b"[]", r"an object was expected, got list"),
        (b"{", r"."),
    ],
)
def test_wrong_shapes_are_named_with_their_place(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode(Letter, text)


def test_kept_fields_survive_a_changed_copy() -> None:
    letter = from_json(Letter, {"id": "a", "x": 1})
    assert to_json(replace(letter, id="b")) == {"id": "b", "x": 1}


def test_L34_error_chain_renders_causes_groups_and_cycles() -> None:
    cause = ValueError("low")
    assert error_chain(HarnessError("high", "X", cause)) == "high: low"
    assert error_chain(HarnessError("low", "X", cause)) == "low"
    assert (
        error_chain(ExceptionGroup("both", [ValueError("a"), KeyError()])) == "both [a; KeyError]"
    )
    cause.__cause__ = cause
    assert error_chain(cause) == "low: <circular cause>"
    assert error_chain(type("Odd", (), {"message": "said"})()) == "said"

    class BrokenError(Exception):
        def __str__(self) -> str:  # type: ignore[explicit-override]  # the mistake under test
            raise RuntimeError

    assert error_chain(HarnessError("x", "X", BrokenError())) == "x: <unrenderable value>"


def test_L102_a_secret_never_shows() -> None:
    secret = Secret("sk-1")
    assert "sk-1" not in f"{secret} {secret!r} {[secret]}"
    assert secret.redact("key sk-1!") == "key [redacted]!"
    assert secret.reveal() == "sk-1"


def test_L163_white_space_is_javascripts() -> None:
    assert is_blank("\ufeff \u2028")
    assert not is_blank("\x1c")
    assert not is_blank("\x85")
    assert js_trim("\ufeffa\x1f\n") == "a\x1f"


def test_L162_T112_units_are_utf16() -> None:
    assert utf16_len("a😀") == 3
    assert sorted(["\uff61", "😀"], key=utf16_key) == ["😀", "\uff61"]


def test_L189_halves_are_paired() -> None:
    assert pair_surrogates("a\ud83d\ude00\ud83d") == "a😀\ud83d"
    assert scrub_surrogates("a\ud83d\ude00\ud83d") == "a😀\ufffd"


class Numbers(UnreadArray[int]):
    """Reads numbers, and counts how often."""

    def __init__(self, text: bytes) -> None:
        super().__init__(text)
        self.reads = 0

    @override
    def _read(self, text: bytes) -> tuple[int, ...]:
        self.reads += 1
        return tuple(int(part) for part in text[1:-1].split(b","))


def test_S174_an_unread_array_is_written_as_it_was_and_read_once() -> None:
    text = b"[1, 2 ,3]"
    numbers = Numbers(text)
    assert encode({"n": numbers}) == b'{"n":[1, 2 ,3]}'
    assert encode(numbers) == text
    assert numbers.reads == 0
    assert (len(numbers), numbers[0], numbers[1:], list(numbers)) == (3, 1, (2, 3), [1, 2, 3])
    assert numbers.reads == 1
    assert to_json(numbers) == [1, 2, 3]
    assert repr(numbers) == "(1, 2, 3)"


def test_an_unread_array_equals_a_tuple_of_its_items() -> None:
    assert Numbers(b"[1,2]") == Numbers(b"[1, 2]") == (1, 2)
    assert Numbers(b"[1,2]") == (1, 2)
    assert Numbers(b"[1,2]") != Numbers(b"[1,3]")
    assert Numbers(b"[1,2]") != [1, 2]
    assert hash(Numbers(b"[1,2]")) == hash((1, 2))


def test_what_is_no_json_is_not_written() -> None:
    with pytest.raises(NotImplementedError, match="is no JSON"):
        encode({"a": object()})
