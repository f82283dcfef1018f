"""What all packages share: the base error, secrets, lossless JSON, text units and open wire types.

Branded ids are plain `typing.NewType` over `str`; each package declares its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dsh_brand.errors import HarnessError, error_chain

if TYPE_CHECKING:
    # Loaded when they are named: the kernel needs the errors only, and must be cheap to import.
    from dsh_brand.frozen import FrozenDict, FrozenList
    from dsh_brand.json import (
        MAX_SAFE_INT,
        JsonValue,
        NotJsonError,
        decode_json,
        encode_json,
        freeze_json,
        freeze_object,
        is_json,
        json_equal,
        thaw_json,
    )
    from dsh_brand.secret import REDACTED, Secret
    from dsh_brand.text import (
        has_surrogates,
        is_blank,
        js_trim,
        pair_surrogates,
        scrub_surrogates,
        utf16_key,
        utf16_len,
    )
    from dsh_brand.wire import (
        Json,
        JsonObject,
        OpenUnion,
        Wire,
        decode,
        encode,
        from_json,
        replace,
        to_json,
    )

__all__ = [
    "MAX_SAFE_INT",
    "REDACTED",
    "FrozenDict",
    "FrozenList",
    "HarnessError",
    "Json",
    "JsonObject",
    "JsonValue",
    "NotJsonError",
    "OpenUnion",
    "Secret",
    "Wire",
    "decode",
    "decode_json",
    "encode",
    "encode_json",
    "error_chain",
    "freeze_json",
    "freeze_object",
    "from_json",
    "has_surrogates",
    "is_blank",
    "is_json",
    "js_trim",
    "json_equal",
    "pair_surrogates",
    "replace",
    "scrub_surrogates",
    "thaw_json",
    "to_json",
    "utf16_key",
    "utf16_len",
]

_HOMES = ("frozen", "secret", "text", "json", "wire")  # each needs those before it at most


def __getattr__(name: str) -> object:
    if name in __all__:
        for home in _HOMES:
            found = vars(import_module(f"{__name__}.{home}"))
            if name in found:
                globals()[name] = found[name]
                return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
