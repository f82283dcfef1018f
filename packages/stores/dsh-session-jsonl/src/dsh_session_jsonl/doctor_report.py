"""What the doctor found, in words for people."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
from typing_extensions import override

Severity: TypeAlias = Literal["warning", "error"]
"""`"error"`: the log cannot be opened; `"warning"`: it opens all the same."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is not as it should be."""

    code: str
    """Stable name of the kind, such as `torn-tail`."""

    severity: Severity
    message: str
    """What was found, in plain words."""

    on_open: str
    """What happens because of it when the session is opened, and what to do."""

    path: Path
    line: int | None = None
    """Line of the log, 1 is the header."""

    offset: int | None = None
    """Byte of the file where it stands; in a compressed log, where its frame begins."""

    seq: int | None = None
    """Seq of the event concerned."""

    @override
    def __str__(self) -> str:
        places = [
            f"{name} {value}"
            for name, value in (("line", self.line), ("seq", self.seq), ("byte", self.offset))
            if value is not None
        ]
        place = f" ({', '.join(places)})" if places else ""
        return (
            f"{self.severity.upper()} {self.code}{place}: {self.message}\n"
            f"    on open: {self.on_open}"
        )


class LogReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about one log."""

    path: Path
    findings: tuple[Finding, ...] = ()
    session_id: str | None = None
    version: int | None = None
    event_count: int = 0
    """Valid events: what opening the log gives, or would give without the damage behind them."""

    size_bytes: int = 0

    @property
    def opens(self) -> bool:
        """Whether a store can open the log."""
        return all(finding.severity != "error" for finding in self.findings)

    @override
    def __str__(self) -> str:
        name = "session ?" if self.session_id is None else f"session {self.session_id}"
        version = "unknown" if self.version is None else self.version
        facts = f"format {version}, {self.event_count} events, {self.size_bytes} bytes"
        lines = [f"{name}: {_verdict(self.findings)} ({facts})", f"  {self.path}"]
        lines += _indented(self.findings)
        return "\n".join(lines)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What the doctor found in a store, or in one log."""

    path: Path
    logs: tuple[LogReport, ...] = ()
    findings: tuple[Finding, ...] = ()
    """What concerns the store and not one of its logs."""

    @property
    def all_findings(self) -> tuple[Finding, ...]:
        """Every finding, those of the logs included."""
        return (*self.findings, *(item for log in self.logs for item in log.findings))

    @property
    def exit_status(self) -> int:
        """0: nothing found; 1: everything opens, with findings; 2: something cannot be opened."""
        severities = {finding.severity for finding in self.all_findings}
        return 2 if "error" in severities else 1 if severities else 0

    @override
    def __str__(self) -> str:
        troubled = [log for log in self.logs if log.findings]
        blocks = [str(log) for log in troubled]
        by_path: dict[Path, list[Finding]] = {}
        for finding in self.findings:
            by_path.setdefault(finding.path, []).append(finding)
        blocks[:0] = ["\n".join([str(path), *_indented(of)]) for path, of in by_path.items()]
        counts = Counter(_verdict(log.findings) for log in self.logs)
        summary = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
        blocks.append(f"{self.path}: {summary or 'no logs'}")
        return "\n\n".join(blocks)


def _verdict(findings: Iterable[Finding]) -> str:
    severities = {finding.severity for finding in findings}
    if "error" in severities:
        return "cannot be opened"
    return "opens, with findings" if severities else "clean"


def _indented(findings: Iterable[Finding]) -> list[str]:
    return [f"  {line}" for finding in findings for line in str(finding).split("\n")]
