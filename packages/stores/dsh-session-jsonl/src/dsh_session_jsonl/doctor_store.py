"""The examination of the folders of a store: what lies where, and who may read it."""

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from dsh_session import SESSION_FORMAT_VERSION, SessionHeader
from dsh_session_jsonl._old_reader import convert
from dsh_session_jsonl.doctor_history import examine_history
from dsh_session_jsonl.doctor_log import LogExamination
from dsh_session_jsonl.doctor_report import Finding, LogReport, Severity
from dsh_session_jsonl.layout import (
    LOCK_NAME,
    Compression,
    LogName,
    is_project_segment,
    log_name,
    parse_log_name,
    project_segment,
    session_segment,
)
from dsh_session_persistence import SessionPersistenceError

_OTHERS: Final = 0o077
_REFUSED: Final = "refused, until it is where it belongs"


def examine_log(path: Path, *, max_line_bytes: int) -> LogReport:
    """Examine one log file."""
    compression = encoding_of(path)
    try:
        examination = LogExamination(path, compression, max_line_bytes=max_line_bytes)
    except OSError as error:
        return LogReport(path=path, findings=(_unreadable(path, error),))
    examination.findings += _access(path)
    name = parse_log_name(path.name)
    if examination.version is not None and examination.version < SESSION_FORMAT_VERSION:
        _examine_old(examination, name, max_line_bytes)
    if name is not None and _in_project(path):
        examination.findings += _place(path, name, examination.version, examination.header)
    if all(finding.severity != "error" for finding in examination.findings):
        examine_history(examination)
    header = examination.header
    return LogReport(
        path=path,
        findings=tuple(examination.findings),
        session_id=None if header is None else header.id,
        version=examination.version,
        event_count=examination.rows_seen if header is None else len(examination.events),
        size_bytes=path.stat().st_size,
    )


def examine_folder(folder: Path, *, max_line_bytes: int) -> tuple[list[LogReport], list[Finding]]:
    """Examine one session's folder: the log that counts, and what else lies there."""
    try:
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        return [], [_unreadable(folder, error)]
    findings = [*_access(folder), *_strays(folder, names), *_lock(folder)]
    logs = [name for name in map(parse_log_name, names) if name is not None]
    if not logs:
        message = "the folder holds no log"
        findings.append(
            _finding("no-log", "warning", message, "no session is listed for it", folder)
        )
        return [], findings
    if len({name.compression for name in logs}) > 1:
        message = f"logs of two encodings: {', '.join(log_name(*name) for name in sorted(logs))}"
        on_open = "refused, until those of one encoding are moved away"
        findings.append(_finding("two-encodings", "error", message, on_open, folder))
    report = examine_log(folder / log_name(*max(logs)), max_line_bytes=max_line_bytes)
    return [report], findings


def examine_store(root: Path, *, max_line_bytes: int) -> tuple[list[LogReport], list[Finding]]:
    """Examine every log below the root of a store."""
    logs: list[LogReport] = []
    findings: list[Finding] = []
    for folder in _session_folders(root, findings):
        found, strange = examine_folder(folder, max_line_bytes=max_line_bytes)
        logs += found
        findings += strange
    findings += _encodings(logs)
    findings += _stored_twice(logs)
    return logs, findings


def _session_folders(root: Path, findings: list[Finding]) -> Iterator[Path]:
    for project in _folders(root, findings, wanted=is_project_segment):
        findings += _access(project)
        yield from _folders(project, findings)


def _folders(
    parent: Path, findings: list[Finding], wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[Path]:
    """The folders that a store would look into; what else stands in their place is a finding."""
    for folder in _entries(parent, findings):
        if not wanted(folder.name):
            continue
        try:
            if stat.S_ISDIR(folder.stat().st_mode):
                yield folder
                continue
        except OSError as error:
            findings.append(_unreadable(folder, error))
            continue
        message = "no folder of a session, and no store makes files here"
        findings.append(_finding("stray-file", "warning", message, "ignored", folder))


def _entries(folder: Path, findings: list[Finding]) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        findings.append(_unreadable(folder, error))
        return []


def encoding_of(path: Path) -> Compression:
    """How a file of that name is encoded."""
    return "zstd" if path.suffix in (".zstd", ".zst") else "none"


def _in_project(path: Path) -> bool:
    """Whether the log lies where a store would look for one."""
    return is_project_segment(path.absolute().parent.parent.name)


def _place(
    path: Path, name: LogName, version: int | None, header: SessionHeader | None
) -> Iterator[Finding]:
    if version is not None and version != name.version:
        message = f"the file's name says format {name.version}, its header format {version}"
        yield _finding("wrong-name", "error", message, _REFUSED, path)
    if header is None:
        return
    belongs = Path(project_segment(header.cwd)) / session_segment(header.id)
    folder = path.absolute().parent
    if (folder.parent.name, folder.name) != (belongs.parent.name, belongs.name):
        message = f"the log of session {header.id!r} with cwd {header.cwd!r} belongs in {belongs}"
        yield _finding("wrong-place", "error", message, _REFUSED, path)


def _examine_old(examination: LogExamination, name: LogName | None, max_line_bytes: int) -> None:
    """Convert a log of an older format in memory, and go on with what it becomes."""
    message = f"the log has session format {examination.version}, older than this build's"
    if name is None:
        on_open = "refused: its name must say its format, such as session.v2.jsonl"
        examination.note("older-format", "error", message, on_open)
        return
    try:
        log = convert(examination.path.parent, name, max_line_bytes=max_line_bytes)
    except SessionPersistenceError as error:
        on_open = f"refused, and never written to: {error.message}"
        examination.note("older-format", "error", message, on_open)
        return
    examination.header, examination.events = log.header, list(log.events)
    on_open = "converted in memory; a writer publishes the converted log beside this file"
    examination.note("older-format", "warning", message, on_open)


def _access(path: Path) -> list[Finding]:
    if os.name != "posix":
        return []
    try:
        mode = path.stat().st_mode & 0o777
    except OSError:
        # Whoever reads it says why it cannot be looked at.
        return []
    if not mode & _OTHERS:
        return []
    message = f"its mode is {mode:03o}: other users of this machine may use it"
    on_open = f"nothing; `chmod go= {path}` makes it private"
    return [_finding("permissions", "warning", message, on_open, path)]


def _strays(folder: Path, names: list[str]) -> Iterator[Finding]:
    for name in names:
        if name.startswith(".session.") and name.endswith(".tmp"):
            message = "left behind by a writer that was killed while it made the log"
            on_open = "ignored; remove it when no writer runs"
            yield _finding("stray-file", "warning", message, on_open, folder / name)


def _lock(folder: Path) -> Iterator[Finding]:
    path = folder / LOCK_NAME
    try:
        mode = path.lstat().st_mode
    except OSError:
        # Whoever writes makes one; a folder that cannot be looked at is told of by others.
        return
    if not stat.S_ISREG(mode):
        message = "no regular file stands where the lock of the writer should be"
        on_open = "opens for reading; to write, move it away"
        yield _finding("bad-lock", "warning", message, on_open, path)


def _encodings(logs: list[LogReport]) -> Iterator[Finding]:
    counts = Counter(encoding_of(log.path) for log in logs)
    if len(counts) < 2:
        return
    usual = counts.most_common(1)[0][0]
    for log in logs:
        if encoding_of(log.path) != usual:
            message = f"its encoding is {encoding_of(log.path)!r}, other logs here have {usual!r}"
            on_open = f"a store of compression {usual!r} lists it as a problem"
            yield _finding("two-encodings", "error", message, on_open, log.path)


def _stored_twice(logs: list[LogReport]) -> Iterator[Finding]:
    counts = Counter(log.session_id for log in logs)
    for log in logs:
        if log.session_id is not None and counts[log.session_id] > 1:
            message = f"session {log.session_id!r} is stored {counts[log.session_id]} times"
            on_open = "refused, until all but one are moved away"
            yield _finding("stored-twice", "error", message, on_open, log.path)


def _unreadable(path: Path, error: OSError) -> Finding:
    message = f"cannot be read: {error.strerror or error}"
    return _finding("unreadable", "error", message, "refused with the same error", path)


def _finding(code: str, severity: Severity, message: str, on_open: str, path: Path) -> Finding:
    return Finding(code=code, severity=severity, message=message, on_open=on_open, path=path)
