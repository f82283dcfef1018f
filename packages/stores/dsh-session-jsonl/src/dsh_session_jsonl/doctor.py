"""The doctor: says in plain words what is wrong with a stored session, and what that means.

``python -m dsh_session_jsonl.doctor PATH`` prints a report of a log, of a session's folder or of a
whole store. It reads only, takes no lock, and needs no more memory than opening the log does; a
line longer than `MAX_LINE_BYTES` is refused without reading it. While a writer is at work, a line
that it is just writing looks like a torn tail.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dsh_brand import HarnessError
from dsh_session_jsonl.doctor_repair import Repair, RepairRefusedError, write_repaired
from dsh_session_jsonl.doctor_report import Finding, LogReport, Report, Severity
from dsh_session_jsonl.doctor_store import examine_folder, examine_log, examine_store
from dsh_session_jsonl.layout import LOCK_NAME, parse_log_name
from dsh_session_jsonl.stored_lines import MAX_LINE_BYTES

__all__ = [
    "MAX_LINE_BYTES",
    "Finding",
    "LogReport",
    "Repair",
    "RepairRefusedError",
    "Report",
    "Severity",
    "check",
    "check_log",
    "check_store",
    "main",
    "repair_to_copy",
]


def check_log(path: Path, *, max_line_bytes: int = MAX_LINE_BYTES) -> Report:
    """Examine one log file; whatever it is, the answer is a report.

    Args:
        path: The file. Where its folders are those of a store, it must be in the right ones.
        max_line_bytes: Longest line that is read.
    """
    log = examine_log(path, max_line_bytes=max_line_bytes)
    return Report(path=path, logs=(log,))


def check_store(root: Path, *, max_line_bytes: int = MAX_LINE_BYTES) -> Report:
    """Examine every log below the root of a store; one bad log does not hide another.

    Args:
        root: The folder that the store is configured with.
        max_line_bytes: Longest line that is read.
    """
    logs, findings = examine_store(root, max_line_bytes=max_line_bytes)
    return Report(path=root, logs=tuple(logs), findings=tuple(findings))


def check(path: Path, *, max_line_bytes: int = MAX_LINE_BYTES) -> Report:
    """Examine a log, a session's folder or a store, whichever `path` is."""
    if parse_log_name(path.name) is not None or not path.is_dir():
        return check_log(path, max_line_bytes=max_line_bytes)
    names = [entry.name for entry in path.iterdir()]
    if LOCK_NAME in names or any(parse_log_name(name) for name in names):
        logs, findings = examine_folder(path, max_line_bytes=max_line_bytes)
        return Report(path=path, logs=tuple(logs), findings=tuple(findings))
    return check_store(path, max_line_bytes=max_line_bytes)


def repair_to_copy(path: Path, target: Path, *, max_line_bytes: int = MAX_LINE_BYTES) -> Repair:
    """Write a copy of a damaged log that opens; the original is only read.

    Kept is every line before the first damage, byte for byte, and behind rows that only repeat an
    earlier one. What stands behind a gap is left out: without the events of the gap it would say
    something else. The copy is compressed if the target's name ends in ``.zstd``.

    Raises:
        FileExistsError: There is something at `target`.
        RepairRefusedError: The log has no header, or needs another build instead of a repair.
        OSError: The log cannot be read, or the copy not be written.
    """
    return write_repaired(path, target, max_line_bytes=max_line_bytes)


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit status: 0 clean, 1 opens with findings, 2 does not open."""
    parser = argparse.ArgumentParser(
        prog="python -m dsh_session_jsonl.doctor",
        description="Examine a session log, a session's folder or a whole store.",
        epilog="Exit status: 0 clean, 1 findings that open anyway, 2 something cannot be opened.",
    )
    parser.add_argument("path", type=Path, help="a log, a session's folder or a store's root")
    parser.add_argument(
        "--repair", type=Path, metavar="COPY", help="write a repaired copy of a log"
    )
    parser.add_argument(
        "--max-line-bytes", type=int, default=MAX_LINE_BYTES, help="longest line that is read"
    )
    options = parser.parse_args(arguments)
    report = check(options.path, max_line_bytes=options.max_line_bytes)
    sys.stdout.write(f"{report}\n")
    if options.repair is None:
        return report.exit_status
    try:
        repair = repair_to_copy(options.path, options.repair, max_line_bytes=options.max_line_bytes)
    except (HarnessError, OSError) as error:
        sys.stderr.write(f"no copy was written: {error}\n")
        return 2
    sys.stdout.write(f"{repair}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
