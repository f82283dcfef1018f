"""A process group as a whole: signals, and whether anything of it is left."""

import os
import signal
import sys
from pathlib import Path


class ProcessGroup:
    """The group that a child leads. Once it was seen gone it is never signalled again.

    Ids are reused: a signal to a group that has ended may hit a stranger's.
    """

    def __init__(self, leader: int) -> None:
        self.id = leader
        self.leader_reaped = False
        self._gone = False

    def gone(self) -> bool:
        """True if no process of the group is alive; stays true."""
        if not self._gone:
            self._gone = not self._exists() or (self.leader_reaped and self._only_zombies())
        return self._gone

    def send(self, number: signal.Signals) -> None:
        """Signal every member."""
        if self._gone:
            return
        try:
            os.killpg(self.id, number)
        except ProcessLookupError:
            self._gone = True
        except PermissionError:
            pass  # what remains runs as another user; `gone` goes on telling that it is there

    def _exists(self) -> bool:
        try:
            os.killpg(self.id, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def _only_zombies(self) -> bool:
        # Where nobody reaps orphans, as in many containers, dead members stay listed for ever.
        if not sys.platform.startswith("linux"):
            return False
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and self._is_live_member(entry):
                return False
        return True

    def _is_live_member(self, entry: Path) -> bool:
        try:
            # Behind the name, which may hold anything: state, parent, group.
            state, _, group = (entry / "stat").read_bytes().rpartition(b")")[2].split()[:3]
        except (OSError, ValueError):
            return False  # it ended meanwhile
        return int(group) == self.id and state not in (b"Z", b"X")
