"""Cards of changes: what was changed, with some lines around it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dsh_brand import JsonValue
from dsh_tools import ResultView, ToolExecutionResult
from dsh_tools.presentation import Diff, DiffResult

CONTEXT_LINES: Final = 3
MAX_CARD_BYTES: Final = 65_536
"""Of what a change leaves in the log for its card; a larger change has none."""
_MAX_COMPARED_LINES: Final = 500
"""Finding the single changes takes time that grows with the square; beyond, there is one hunk."""


def change_meta(arguments: object, value: Mapping[str, Any]) -> JsonValue:
    """What a card of the result needs: old and new text of each hunk; null for new files."""
    if value["before"] is None:
        return None
    old, new = (_lines(value[side]) for side in ("before", "after"))
    hunks: list[JsonValue] = []
    left = MAX_CARD_BYTES
    for before, after in _hunks(old, new):
        left -= len(before.encode()) + len(after.encode())
        if left < 0:
            return None
        hunks.append({"old": before, "new": after})
    return {"path": value["path"], "hunks": hunks}


def present_change(arguments: object, result: ToolExecutionResult) -> ResultView | None:
    """The hunks of a change."""
    meta = result.meta
    if not isinstance(meta, Mapping) or meta.keys() != {"path", "hunks"}:
        return None
    known: Mapping[str, Any] = meta
    return DiffResult(tuple(Diff(known["path"], h["old"], h["new"]) for h in known["hunks"]))


def _hunks(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[str, str]]:
    shortest = min(len(old), len(new))
    same = next((i for i in range(shortest) if old[i] != new[i]), shortest)
    left = shortest - same
    tail = next((i for i in range(left) if old[-1 - i] != new[-1 - i]), left)
    start = max(0, same - CONTEXT_LINES)
    rest = max(0, tail - CONTEXT_LINES)
    old, new = old[start : len(old) - rest], new[start : len(new) - rest]
    if not old and not new:
        return
    if max(len(old), len(new)) > _MAX_COMPARED_LINES:
        yield "".join(old), "".join(new)
        return
    import difflib  # only changes need it

    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        _, old_start, _, new_start, _ = group[0]
        _, _, old_end, _, new_end = group[-1]
        yield "".join(old[old_start:old_end]), "".join(new[new_start:new_end])


def _lines(text: str) -> list[str]:
    # Only LF ends a line of a file; `splitlines` knows many more.
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]
