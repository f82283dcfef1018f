"""Wire types against plain msgspec structs: what keeping unknown fields costs."""

from collections.abc import Callable, Mapping

import msgspec

from dsh_brand import Wire, decode, encode

BASELINE = "plain struct"

KNOWN = b'{"callId":"c1","toolName":"read","lines":[1,2,3]}'
UNKNOWN = b'{"callId":"c1","toolName":"read","lines":[1,2,3],"later":{"a":1}}'


class Plain(msgspec.Struct, frozen=True, rename="camel"):
    """The same fields without the openness."""

    call_id: str
    tool_name: str
    lines: tuple[int, ...]


class Open(Wire, frozen=True):
    """The fields as a wire type."""

    call_id: str
    tool_name: str
    lines: tuple[int, ...]


def cases() -> Mapping[str, Callable[[], object]]:
    """One value read and written again."""
    plain = msgspec.json.Decoder(Plain)
    encoder = msgspec.json.Encoder()
    return {
        "plain struct": lambda: encoder.encode(plain.decode(KNOWN)),
        "wire type": lambda: encode(decode(Open, KNOWN)),
        "wire type with an unknown field": lambda: encode(decode(Open, UNKNOWN)),
    }
