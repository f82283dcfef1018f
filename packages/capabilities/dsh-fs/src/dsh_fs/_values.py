"""What the file tools return, and how a model reads it."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from . import texts

MAX_LINES: Final = 2000


class ReadLine(msgspec.Struct, frozen=True):
    """A line with its number."""

    number: int
    text: str


class ReadValue(msgspec.Struct, frozen=True, rename="camel"):
    """Part of a file."""

    path: str
    offset: int
    lines: list[ReadLine]
    total_lines: int


class ChangeValue(msgspec.Struct, frozen=True):
    """A changed file."""

    path: str
    operation: Literal["create", "update"]
    before: str | None
    after: str


def render_read(arguments: Mapping[str, Any], value: Mapping[str, Any]) -> str:
    """Numbered lines in a frame, and where to go on."""
    lines: list[Mapping[str, Any]] = value["lines"]
    first, total = value["offset"], value["totalLines"]
    last = first + len(lines) - 1
    if last >= total:
        footer = texts.END_OF_FILE.format(total=total)
    else:
        # Fewer lines than asked for, and not the end: the byte limit ended them.
        capped = len(lines) < min(arguments.get("limit", MAX_LINES), MAX_LINES)
        text = texts.CAPPED if capped else texts.MORE_LINES
        footer = text.format(first=first, last=last, total=total, next=last + 1)
    numbered = "".join(f"{line['number']}: {line['text']}\n" for line in lines)
    head = f"<path>{value['path']}</path>\n<type>file</type>\n<content>\n"
    return f"{head}{numbered}\n{footer}\n</content>"


def render_write(arguments: object, value: Mapping[str, Any]) -> str:
    """What happened to which file."""
    text = texts.CREATED if value["operation"] == "create" else texts.UPDATED
    return text.format(path=value["path"])


def render_edit(arguments: Mapping[str, Any], value: Mapping[str, Any]) -> str:
    """What happened to which file."""
    text = texts.UPDATED_ALL if arguments.get("replace_all") else texts.UPDATED
    return text.format(path=value["path"])
