"""What became of each recorded log: `python tests/recordings_table.py`.

Every log that the reference harness recorded is stored, opened, folded, derived and written again,
and compared with facts that another program told. The tests of `dsh-session-jsonl` do the same
step by step; this prints one line for each recording and ends with status 1 if one is not as told.
"""

import importlib.util
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from dsh_session import SessionId
from dsh_session_jsonl import JsonlStore
from dsh_session_persistence import SessionFormatUnsupportedError

_TESTS: Final = Path(__file__).resolve().parents[1] / "packages/stores/dsh-session-jsonl/tests"


class Row(NamedTuple):
    """One line of the table."""

    recording: str
    format: int
    events: int
    messages: int
    outcome: str
    as_told: bool


def _module(name: str) -> Any:  # a module found by its path; its names are those of the tests
    found = sys.modules.get(name)
    if not isinstance(found, ModuleType):
        spec = importlib.util.spec_from_file_location(name, _TESTS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        found = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
    return found


def rows(root: Path) -> Iterator[Row]:
    """Store and judge every recording, each below a folder of its own in `root`."""
    old, native = (_module(f"test_session_jsonl_{name}recordings") for name in ("old_", ""))
    recordings: Path = old.RECORDINGS
    for number, (name, facts) in enumerate(sorted(old.FACTS.items())):
        yield _judged(old, name, old.completed(recordings / name), facts, root / f"old-{number}")
    told = json.loads((recordings / "newest" / "facts.json").read_text("utf-8"))
    for number, path in enumerate(native.FILES):
        name = path.relative_to(native.RECORDINGS).as_posix()
        facts = {key: value for key, value in told[name].items() if key != "rows"}
        lines = native.completed(path)
        yield _judged(old, f"newest/{name}", lines, facts, root / f"native-{number}")


def _judged(
    old: Any, name: str, lines: list[dict[str, Any]], facts: dict[str, Any], root: Path
) -> Row:
    """What the store makes of one recording; `old` is the module that knows how to ask it."""
    path = old.stored(root, lines)
    session_id, version = SessionId(str(lines[0]["id"])), int(lines[0]["version"])
    store = JsonlStore(root, "none")
    try:
        log = store.open(session_id, "read")
    except SessionFormatUnsupportedError as error:
        outcome = f"refused: {str(error).partition(': ')[2].partition(' (')[0]}"
        return Row(name, version, len(lines) - 1, 0, outcome, "refused" in facts)
    events = log.read()
    store.open(session_id, "write").close()
    written = path.with_name("session.v4.jsonl").read_text("utf-8").splitlines()
    found = old.facts_of(list(json.loads(written[0])), log.inherited_event_count, events)
    wrong = sorted(key for key in facts if found.get(key) != facts[key])
    if version == 4 and list(map(json.loads, written)) != lines:
        wrong.append("what is written")
    outcome = f"not as told: {', '.join(wrong)}" if wrong else "as told"
    return Row(name, version, len(events), len(found["derived_roles"]), outcome, not wrong)


def main() -> int:
    """Print the table."""
    with tempfile.TemporaryDirectory() as root:
        found = list(rows(Path(root)))
    sys.stdout.write(
        "| recording | format | events | messages | outcome |\n|---|---|---|---|---|\n"
    )
    for row in found:
        sys.stdout.write(
            f"| {row.recording} | {row.format} | {row.events} | {row.messages} | {row.outcome} |\n"
        )
    count = sum(row.as_told for row in found)
    sys.stdout.write(f"\n{count} of {len(found)} recordings are as told\n")
    return 0 if count == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
