"""Finding, creating and listing the logs below one root. Upstream: session-jsonl store."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from typing_extensions import override

from dsh_brand import HarnessError
from dsh_session import SESSION_FORMAT_VERSION, SessionHeader, SessionId
from dsh_session_jsonl import zstd_frames
from dsh_session_jsonl._encoding import header_line, read_header_line
from dsh_session_jsonl._old_reader import OldLogReader, convert, publish_converted
from dsh_session_jsonl._old_scan import parse_old_header
from dsh_session_jsonl._reader import LogReader, revision_of
from dsh_session_jsonl._scan import parse_header, wrong_version
from dsh_session_jsonl._writer import LogWriter
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
from dsh_session_jsonl.stored_lines import MAX_HEADER_BYTES, MAX_LINE_BYTES
from dsh_session_persistence import (
    Access,
    Lease,
    ListingProblem,
    SessionAlreadyExistsError,
    SessionFormatUnsupportedError,
    SessionListing,
    SessionLog,
    SessionLogStore,
    SessionPersistenceCorruptionError,
    SessionPersistenceNotFoundError,
    SessionPersistenceSnapshot,
    SessionStorageError,
)
from dsh_session_persistence.files import check_folder

_ESCAPED: Final = re.compile(r"~([0-9A-F]{4})")


class _Place(NamedTuple):
    """A session's folder and the log in it that counts."""

    folder: Path
    name: LogName

    @property
    def path(self) -> Path:
        return self.folder / log_name(*self.name)

    @property
    def is_native(self) -> bool:
        """Whether the log is of the present format; an older one is converted."""
        return self.name.version >= SESSION_FORMAT_VERSION


class JsonlStore(SessionLogStore):
    """The sessions below one root folder. Blocking; `JsonlPersistence` is the async service."""

    def __init__(
        self,
        root: Path,
        compression: Compression = "zstd",
        *,
        max_line_bytes: int = MAX_LINE_BYTES,
    ) -> None:
        """Look at the root, create nothing.

        Args:
            root: Folder of all logs.
            compression: Encoding of all of them.
            max_line_bytes: Longest event, in bytes of its line, that is read or written.

        Raises:
            SessionStorageError: The root cannot be read, or zstd is not installed.
        """
        self.root = root.expanduser().resolve()
        self.compression: Compression = compression
        self.max_line_bytes = max_line_bytes
        check_folder(self.root, "the root of the session store")
        if compression == "zstd":
            zstd_frames.check_available()

    @override
    def create(self, header: SessionHeader, inherited_event_count: int) -> SessionLog:
        folder = self.root / project_segment(header.cwd) / session_segment(header.id)

        _check_header(header, folder)

        def check_absent() -> None:
            for place in self._places(header.id, []):
                raise SessionAlreadyExistsError(header.id, str(place.path))

        check_absent()
        return LogWriter(
            folder / log_name(SESSION_FORMAT_VERSION, self.compression),
            self.compression,
            header,
            inherited_event_count,
            check_absent=check_absent,
            max_line_bytes=self.max_line_bytes,
        )

    @override
    def open(self, session_id: SessionId, access: Access) -> SessionLog:
        place = self._find(session_id)
        if access == "read":
            return self._read_log(place) if place.is_native else self._read_old_log(place)
        lease = Lease.acquire(place.folder / LOCK_NAME, session_id)
        try:
            # Looked at again: another writer may have published a later generation meanwhile.
            place = self._find(session_id)
            if not place.is_native:
                place = self._publish(place)
            return LogWriter.resume(self._read_log(place), lease)
        except BaseException:
            lease.release()
            raise

    @override
    def stat(self, session_id: SessionId) -> SessionPersistenceSnapshot:
        return self._snapshot(self._find(session_id))

    @override
    def list(self) -> SessionListing:
        places: dict[SessionId, list[_Place]] = {}
        sessions: dict[SessionId, SessionPersistenceSnapshot] = {}
        problems: list[ListingProblem] = []
        for folder in self._session_folders(problems):
            try:
                for place in self._place(folder):
                    snapshot = self._snapshot(place)
                    sessions[snapshot.header.id] = snapshot
                    places.setdefault(snapshot.header.id, []).append(place)
            except (HarnessError, OSError) as error:
                problems.append(_problem(folder, error))
        for session_id, found in places.items():
            if len(found) > 1:
                del sessions[session_id]
                problems.append(_problem(found[0].folder, _stored_twice(session_id, found)))
        return SessionListing(sessions=tuple(sessions.values()), problems=tuple(problems))

    def _read_log(self, place: _Place) -> LogReader:
        path = self._usable(place)
        reader = LogReader(path, self.compression, max_line_bytes=self.max_line_bytes)
        self._check_identity(place, reader.header)
        return reader

    def _read_old_log(self, place: _Place) -> OldLogReader:
        self._usable(place)
        reader = OldLogReader(place.folder, place.name, max_line_bytes=self.max_line_bytes)
        self._check_identity(place, reader.header)
        return reader

    def _publish(self, place: _Place) -> _Place:
        """Write what an old log becomes, or find that somebody else did it meanwhile."""
        self._usable(place)
        log = convert(place.folder, place.name, max_line_bytes=self.max_line_bytes)
        self._check_identity(place, log.header)
        with contextlib.suppress(FileExistsError):
            publish_converted(place.folder, place.name, log)
        return self._find(log.header.id)

    def _snapshot(self, place: _Place) -> SessionPersistenceSnapshot:
        path = self._usable(place)
        # The revision first: if the log grows meanwhile, the next look sees another one.
        status = path.stat()
        line = read_header_line(path, self.compression)
        if place.is_native:
            header = parse_header(line, path)
        else:
            header = parse_old_header(line, place.name.version, path)
        self._check_identity(place, header)
        return SessionPersistenceSnapshot(
            header=header, revision=revision_of(status), size_bytes=status.st_size
        )

    def _find(self, session_id: SessionId) -> _Place:
        unreadable: list[OSError] = []
        places = list(self._places(session_id, unreadable))
        if not places and unreadable:
            # It may lie there: then it is not unknown.
            raise unreadable[0]
        if not places:
            raise SessionPersistenceNotFoundError(session_id)
        if len(places) > 1:
            raise _stored_twice(session_id, places)
        return places[0]

    def _places(
        self, session_id: SessionId, unreadable: MutableSequence[OSError]
    ) -> Iterator[_Place]:
        """Where the session lies; a folder that cannot be looked at is no reason to hide others."""
        segment = session_segment(session_id)
        for project in self._projects([]):
            try:
                yield from self._place(project / segment)
            except OSError as error:
                unreadable.append(error)

    def _session_folders(self, problems: MutableSequence[ListingProblem]) -> Iterator[Path]:
        for project in self._projects(problems):
            try:
                yield from _folders(project, problems)
            except OSError as error:
                problems.append(ListingProblem(location=str(project), error=error))

    def _place(self, folder: Path) -> Iterator[_Place]:
        """The log that counts in a session's folder: the highest generation, if there is any.

        One of another encoding decides, so that the folder is refused whole.
        """
        try:
            files = [entry.name for entry in folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return
        names = [name for name in map(parse_log_name, files) if name is not None]
        foreign = [name for name in names if name.compression != self.compression]
        if names:
            yield _Place(folder, max(foreign or names))

    def _projects(self, problems: MutableSequence[ListingProblem]) -> Sequence[Path]:
        return _folders(self.root, problems, wanted=is_project_segment)

    def _usable(self, place: _Place) -> Path:
        """The path of a log that this build and this root's encoding can use."""
        version, compression = place.name
        if compression != self.compression:
            raise SessionFormatUnsupportedError(
                f"the log's encoding is {compression!r}, this store's is {self.compression!r}: "
                f"open it with a store of compression = {compression!r}",
                str(place.path),
            )
        if version > SESSION_FORMAT_VERSION:
            raise wrong_version(version, version, place.path)
        if not place.path.is_file():
            raise SessionPersistenceCorruptionError(
                "no regular file stands where the log should be: move away what does",
                str(place.path),
            )
        return place.path

    def _check_identity(self, place: _Place, header: SessionHeader) -> None:
        expected = self.root / project_segment(header.cwd) / session_segment(header.id)
        if place.folder != expected:
            raise SessionPersistenceCorruptionError(
                f"the header (id {header.id!r}, cwd {header.cwd!r}) belongs in {expected}",
                str(place.path),
                line=1,
            )


def _check_header(header: SessionHeader, folder: Path) -> None:
    size = len(header_line(header))
    if size > MAX_HEADER_BYTES:
        raise SessionStorageError(
            f"the header of session {header.id!r} takes {size} bytes, more than the "
            f"{MAX_HEADER_BYTES} that can be read again: shorten its cwd or agent preset",
            str(folder),
        )


def _folders(
    parent: Path,
    problems: MutableSequence[ListingProblem],
    wanted: Callable[[str], bool] = lambda _: True,
) -> list[Path]:
    """The folders in a folder, sorted; an entry that cannot be looked at is a problem."""
    found = []
    try:
        with os.scandir(parent) as entries:
            for entry in entries:
                path = parent / entry.name
                try:
                    if wanted(entry.name) and entry.is_dir():
                        found.append(path)
                except OSError as error:
                    problems.append(_problem(path, error))
    except FileNotFoundError:
        return []
    return sorted(found)


def _problem(folder: Path, error: Exception) -> ListingProblem:
    location = getattr(error, "location", None) or str(folder)
    return ListingProblem(location=location, error=error, session_id=_id_of_segment(folder.name))


def _id_of_segment(segment: str) -> SessionId | None:
    """The id that a folder's name stands for; `None` if it stands for none."""
    raw = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), segment)
    session_id = raw.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return SessionId(session_id) if session_segment(session_id) == segment else None


def _stored_twice(
    session_id: SessionId, places: Sequence[_Place]
) -> SessionPersistenceCorruptionError:
    paths = ", ".join(str(place.path) for place in places)
    return SessionPersistenceCorruptionError(
        f"session {session_id!r} is stored more than once: {paths}; move all but one away"
    )
