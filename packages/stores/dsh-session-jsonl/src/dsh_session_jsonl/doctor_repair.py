"""A copy of a damaged log that opens: what was intact before the damage, unchanged."""

from pathlib import Path

import msgspec
from typing_extensions import override

from dsh_session import InvalidLogError, SessionEvent, SessionHeader
from dsh_session_jsonl._encoding import framed, header_line
from dsh_session_jsonl.doctor_log import LogExamination
from dsh_session_jsonl.doctor_store import encoding_of
from dsh_session_jsonl.durable_files import publish
from dsh_session_persistence import SessionPersistenceError, StoredLogRules


class RepairRefusedError(SessionPersistenceError):
    """There is nothing to repair, or nothing that can be; no file was written."""

    def __init__(self, message: str, location: str) -> None:
        super().__init__(f"{message} ({location})", "SESSION_REPAIR_REFUSED")
        self.location = location


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair kept."""

    target: Path
    event_count: int
    """Events of the copy."""

    lost_rows: int
    """Lines of the original that are not in the copy."""

    reseeded: bool = False
    """The header's mark of a fork prefix was changed to what the events say."""

    @override
    def __str__(self) -> str:
        reseeded = "; the header's mark of a fork was corrected" if self.reseeded else ""
        return (
            f"{self.target}: {self.event_count} events kept, "
            f"{self.lost_rows} lines left out{reseeded}"
        )


def write_repaired(path: Path, target: Path, *, max_line_bytes: int) -> Repair:
    """See `doctor.repair_to_copy`."""
    if target.exists() or target.is_symlink():
        raise FileExistsError(f"{target} exists: a repair never writes over anything")
    found = LogExamination(path, encoding_of(path), max_line_bytes=max_line_bytes, to_repair=True)
    for finding in found.findings:
        if finding.code in ("newer-format", "unknown-event"):
            raise RepairRefusedError(f"not damaged: {finding.message}", str(path))
    if found.header is None:
        raise RepairRefusedError("without its header line a log cannot be repaired", str(path))
    header, kept = _fitting(found.header, found.events)
    lines = found.rows[: len(kept)]
    reseeded = header is not found.header
    first = header_line(header) if reseeded else found.header_text + b"\n"
    encoding = encoding_of(target)
    data = framed(first, encoding)
    if lines:
        data += framed(b"".join(line + b"\n" for line in lines), encoding)
    publish(target, data)
    lost = found.rows_seen - len(lines)
    return Repair(target=target, event_count=len(kept), lost_rows=lost, reseeded=reseeded)


def _fitting(
    header: SessionHeader, events: list[SessionEvent]
) -> tuple[SessionHeader, list[SessionEvent]]:
    """Header and events that fit together: the log is cut, or the mark of the header changed."""
    seeded = any(getattr(event.data, "inherited", None) is True for event in events)
    if header.is_seeded != seeded:
        header = msgspec.structs.replace(header, is_seeded=seeded)
    while True:
        rules = StoredLogRules(header)
        for event in events:
            rules.take(event)
        try:
            rules.finish()
        except InvalidLogError as error:
            if not error.seq:
                raise
            events = events[: error.seq]
        else:
            return header, events
