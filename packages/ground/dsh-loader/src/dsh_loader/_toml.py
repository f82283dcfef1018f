"""Reading and writing TOML; the standard library reads only."""

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from dsh_loader.errors import RowsError

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def read_toml(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """The tables of a file.

    Raises:
        RowsError: It cannot be read or parsed, or is absent and not optional.
    """
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except FileNotFoundError as error:
        if optional:
            return {}
        raise RowsError(f"{path}: no such file; create it or leave it out", error) from error
    except OSError as error:
        raise RowsError(f"{path} cannot be read: {error.strerror or error}", error) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RowsError(f"{path} is no valid TOML: {error}", error) from error


def write_table(header: str, table: Mapping[str, object]) -> str:
    """One `[[header]]` entry, each value on a line of its own."""
    lines = [f"{_key(key)} = {_value(value)}" for key, value in table.items()]
    return "\n".join([f"[[{header}]]", *lines, ""])


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, Mapping):
        inner = ", ".join(
            f"{_key(str(key))} = {_value(part)}" for key, part in value.items() if part is not None
        )
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(part) for part in value) + "]"
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    return repr(value)
