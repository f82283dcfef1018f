"""What the doctor says about a log, and that the store agrees."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh_brand import HarnessError
from dsh_llm import Message, MessageId, UserSource
from dsh_session import (
    EndSeed,
    Session,
    SessionEvent,
    SessionId,
    StepStart,
    TurnStart,
    UserMessageEvent,
    encode_event,
)
from dsh_session.testing import WORKED_EXAMPLE, append_turn, new_session
from dsh_session_jsonl import Compression, JsonlStore
from dsh_session_jsonl.doctor import (
    LogReport,
    RepairRefusedError,
    check,
    check_log,
    check_store,
    main,
    repair_to_copy,
)
from dsh_session_jsonl.layout import project_segment, session_segment
from dsh_session_persistence.testing import sample_events, sample_header

ID = SessionId("sample")
BOTH = pytest.mark.parametrize("compression", ["none", "zstd"])


def write(
    root: Path,
    *batches: list[SessionEvent],
    compression: Compression = "none",
    session_id: str = ID,
    is_seeded: bool = False,
) -> Path:
    """Store a log of these batches and return its path."""
    header = sample_header(session_id, is_seeded=is_seeded)
    log = JsonlStore(root, compression).create(header, 0)
    log.flush()
    for batch in batches:
        log.append(batch)
    log.close()
    assert log.path is not None
    return log.path


def put(root: Path, lines: list[bytes]) -> Path:
    """A log of these lines where a store looks for session `sample`."""
    shutil.rmtree(root / project_segment("/srv/demo"), ignore_errors=True)
    path = write(root)
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def lines_of(root: Path, count: int = 7) -> list[bytes]:
    return write(root, sample_events(count)).read_bytes().split(b"\n")[:-1]


def codes(report: object) -> list[tuple[str, str]]:
    return [(item.code, item.severity) for item in report.all_findings]  # type: ignore[attr-defined]  # a Report


def only(path: Path) -> LogReport:
    (log,) = check_log(path).logs
    return log


def opens(root: Path, compression: Compression = "none") -> int | None:
    """How many events the store gives; `None` if it refuses."""
    try:
        return len(JsonlStore(root, compression).open(ID, "read").read())
    except (HarnessError, OSError):
        return None


@BOTH
def test_a_sound_log_is_clean(tmp_path: Path, compression: Compression) -> None:
    path = write(tmp_path, sample_events(3), sample_events(3, start=3), compression=compression)
    log = only(path)
    assert (log.findings, log.event_count, log.version, log.session_id) == ((), 6, 4, ID)
    assert check_store(tmp_path).exit_status == 0
    assert "clean" in str(check_store(tmp_path))


def test_the_worked_example_is_clean_where_it_belongs(tmp_path: Path) -> None:
    folder = tmp_path / project_segment("/srv/demo app") / session_segment("run/7")
    folder.mkdir(parents=True, mode=0o700)
    folder.parent.chmod(0o700)
    path = folder / "session.v4.jsonl"
    path.touch(mode=0o600)
    path.write_bytes(WORKED_EXAMPLE)
    assert codes(check_store(tmp_path)) == []


@BOTH
def test_S140_S141_a_torn_tail_is_told_with_its_place(
    tmp_path: Path, compression: Compression
) -> None:
    path = write(tmp_path, sample_events(3), compression=compression)
    good = path.stat().st_size
    whole = write(
        tmp_path / "b", sample_events(3), sample_events(2, start=3), compression=compression
    ).read_bytes()
    path.write_bytes(whole[:-2])
    log = only(path)
    (finding,) = [item for item in log.findings if item.code == "torn-tail"]
    assert (finding.severity, log.opens) == ("warning", True)
    assert finding.offset is not None
    assert finding.offset >= good
    assert log.event_count == opens(tmp_path, compression)
    assert check_log(path).exit_status == 1


def test_damage_in_the_middle_is_an_error_with_line_seq_and_byte(tmp_path: Path) -> None:
    lines = lines_of(tmp_path / "a", 6)
    offset = sum(len(line) + 1 for line in lines[:3])
    path = put(tmp_path, [*lines[:3], b"not json", *lines[4:]])
    (finding,) = [item for item in only(path).findings if item.severity == "error"]
    assert (finding.code, finding.line, finding.seq, finding.offset) == ("damage", 4, 2, offset)
    assert "refused as corrupt" in finding.on_open
    assert opens(tmp_path) is None


@pytest.mark.parametrize(
    ("order", "code", "words"),
    [
        pytest.param([1, 2, 2, 3], "duplicate-seq", "the same event again", id="twice"),
        pytest.param([1, 3], "missing-seq", "seq 1 missing before seq 2", id="one missing"),
        pytest.param([1, 4], "missing-seq", "seqs 1 to 2 missing before seq 3", id="two missing"),
        pytest.param([1, 2, 3, 2], "duplicate-seq", "where seq 3 is due", id="backwards"),
    ],
)
def test_S140_seqs_that_repeat_or_are_missing(
    tmp_path: Path, order: list[int], code: str, words: str
) -> None:
    lines = lines_of(tmp_path / "a")
    path = put(tmp_path, [lines[0], *(lines[number] for number in order)])
    finding = only(path).findings[0]
    assert finding.code in (code, "torn-tail")
    assert words in finding.message


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        pytest.param(b"", "no-header", "empty", id="empty"),
        pytest.param(b'{"type":"session"', "no-header", "cut off", id="half a header"),
        pytest.param("{}\n".encode("utf-16"), "no-header", "UTF-16", id="UTF-16"),
        pytest.param(b"\xef\xbb\xbf{}\n", "no-header", "byte order mark", id="BOM"),
        pytest.param(b'{"type":"sess\xe9"}\n', "no-header", "no UTF-8: byte 0xe9", id="latin-1"),
        pytest.param(b"\0\0\0\0\n", "no-header", "4 zero bytes", id="zeros"),
        pytest.param(b"[]\n", "no-header", "object of type", id="a list"),
        pytest.param(b'{"type":"session","version":5}\n', "newer-format", "upgrade", id="newer"),
        pytest.param(
            b'{"type":"session","version":"4"}\n', "no-header", "version must be", id="text version"
        ),
    ],
)
def test_S119_what_is_no_header_of_ours(
    tmp_path: Path, content: bytes, code: str, words: str
) -> None:
    path = write(tmp_path)
    path.write_bytes(content)
    findings = check_log(path).all_findings
    assert [item.code for item in findings if item.code != "wrong-name"] == [code]
    assert words in findings[0].message
    assert check_log(path).exit_status == 2
    assert opens(tmp_path) is None


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param("{}\n".encode("utf-16"), "UTF-16", id="UTF-16"),
        pytest.param(b"\xef\xbb\xbf{}\n", "byte order mark", id="BOM"),
        pytest.param(b"\0\0\0\0\n", "4 zero bytes", id="zeros"),
        pytest.param(b"Dear diary\n", "not JSON", id="prose"),
    ],
)
def test_the_store_names_a_wrong_text_in_the_words_of_the_doctor(
    tmp_path: Path, content: bytes, words: str
) -> None:
    path = write(tmp_path)
    path.write_bytes(content)
    (problem,) = JsonlStore(tmp_path, "none").list().problems
    assert words in str(problem.error)
    assert str(path) in str(problem.error)
    assert words in check_log(path).all_findings[0].message


def test_a_bad_log_is_named_and_the_others_are_listed(tmp_path: Path) -> None:
    for session_id in ("good", "sample", "z"):
        write(tmp_path, sample_events(3), session_id=session_id)
    path = write(tmp_path / "x").relative_to(tmp_path / "x")
    (tmp_path / path).write_bytes(b"\xff\xfe")
    report = check_store(tmp_path)
    assert [(log.session_id, log.opens) for log in report.logs] == [
        ("good", True),
        (None, False),
        ("z", True),
    ]
    assert str(tmp_path / path) in str(report)
    assert "1 cannot be opened, 2 clean" in str(report)
    listing = JsonlStore(tmp_path, "none").list()
    assert [item.header.id for item in listing.sessions] == ["good", "z"]
    (problem,) = listing.problems
    assert str(tmp_path / path) in str(problem.error)


def test_a_folder_in_place_of_the_log(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.unlink()
    path.mkdir()
    assert codes(check(path)) == [("unreadable", "error")]
    assert "is a folder" in str(check_store(tmp_path))


@pytest.mark.skipif(os.name != "posix", reason="symbolic links and pipes of POSIX")
def test_a_ring_of_links_and_a_pipe_are_told_and_block_nobody(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.unlink()
    path.symlink_to(path)
    assert codes(check_log(path)) == [("unreadable", "error")]
    path.unlink()
    os.mkfifo(path)
    assert "no regular file" in str(check_log(path))
    ring = path.parent.parent / "ring"
    ring.symlink_to(ring)
    path.unlink()
    assert ("unreadable", "error") in codes(check_store(tmp_path))


def test_a_line_too_long_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = write(tmp_path, sample_events(3))
    good = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(2 << 30)  # a hole: two gigabytes of zeros that take no room on the disk
        file.write(b"\n")
    report, peak = examined_apart(path, 1 << 16)
    assert f"ERROR line-too-long (line 5, byte {good})" in report
    assert f"a line of {(2 << 30) - good} bytes" in report
    assert "format 4, 3 events" in report
    assert peak < 200 << 10


def test_an_endless_tail_is_torn_whatever_its_length(tmp_path: Path) -> None:
    path = write(tmp_path, sample_events(3))
    os.truncate(path, 64 << 20)
    assert codes(check_log(path, max_line_bytes=1 << 16)) == [("torn-tail", "warning")]


def test_S141_a_frame_that_decodes_to_very_much_is_read_in_bounded_memory(tmp_path: Path) -> None:
    import zstandard

    path = write(tmp_path, sample_events(3), compression="zstd")
    bomb = zstandard.ZstdCompressor(write_checksum=True).compressobj()
    with path.open("ab") as file:
        for _ in range(256):
            file.write(bomb.compress(b" " * (1 << 20)))
        file.write(bomb.compress(b"\n"))
        file.write(bomb.flush())
    assert path.stat().st_size < 1 << 20
    report, peak = examined_apart(path, 1 << 20)
    assert f"a line of {256 << 20} bytes" in report
    assert peak < 200 << 10


def examined_apart(path: Path, limit: int) -> tuple[str, int]:
    """The report of a process of its own, and its peak memory in KiB."""
    if not Path("/proc/self/status").exists():
        pytest.skip("the system does not tell the memory of one program, apart from its parent's")
    code = (
        "import re, sys\n"
        "from dsh_session_jsonl.doctor import main\n"
        f"main([{str(path)!r}, '--max-line-bytes', '{limit}'])\n"
        "with open('/proc/self/status', encoding='ascii') as status:\n"
        "    sys.stderr.write(re.search('VmHWM:\\\\s+([0-9]+)', status.read())[1])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout, int(done.stderr)


def row(seq: int, data: str, event_type: str = "goal/change", rest: str = "") -> bytes:
    return f'{{"type":"{event_type}","seq":{seq},"time":1,"data":{data}{rest}}}'.encode()


def test_S27_deep_nesting_opens_and_is_clean(tmp_path: Path) -> None:
    lines = lines_of(tmp_path / "a", 3)
    path = put(tmp_path, [*lines, row(3, "[" * 5000 + "]" * 5000)])
    assert codes(check_log(path)) == []
    assert opens(tmp_path) == 4


def test_nesting_without_bound_is_damage_and_no_crash(tmp_path: Path) -> None:
    path = put(tmp_path, [*lines_of(tmp_path / "a", 3), row(3, "[" * 200_000 + "]" * 200_000)])
    assert check_log(path).exit_status == 2
    assert opens(tmp_path) is None


def test_repeated_keys_are_told(tmp_path: Path) -> None:
    path = put(tmp_path, [*lines_of(tmp_path / "a", 3), row(3, '{"a":1,"a":2}')])
    (finding,) = check_log(path).all_findings
    assert (finding.code, finding.seq, finding.severity) == ("repeated-key", 3, "warning")
    assert "'a'" in finding.message


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_S29_a_number_that_is_none_is_damage(tmp_path: Path, number: str) -> None:
    lines = lines_of(tmp_path / "a", 6)
    path = put(tmp_path, [*lines[:4], row(3, number), *lines[5:]])
    assert ("damage", "error") in codes(check_log(path))
    assert opens(tmp_path) is None


def test_S26_half_characters_open_and_requests_show_a_substitute(tmp_path: Path) -> None:
    lines = lines_of(tmp_path / "a", 3)
    lines[2] = lines[2].replace(b"question", b"\\ud83d question")
    path = put(tmp_path, lines)
    (finding,) = check_log(path).all_findings
    assert (finding.code, finding.seq) == ("text-replaced", 1)
    assert opens(tmp_path) == 3


def test_S118_an_unknown_required_event_is_no_damage(tmp_path: Path) -> None:
    lines = [*lines_of(tmp_path / "a", 3), row(3, "{}", "acme/thing")]
    path = put(tmp_path, lines)
    (finding,) = check_log(path).all_findings
    assert (finding.code, finding.seq) == ("unknown-event", 3)
    assert "nothing is lost" in finding.on_open
    with pytest.raises(RepairRefusedError, match="not damaged"):
        repair_to_copy(path, tmp_path / "copy.jsonl")
    assert opens(tmp_path) is None
    path = put(tmp_path, [*lines[:-1], row(3, "{}", "acme/thing", ',"ignorable":true')])
    assert codes(check_log(path)) == []


def session_log(root: Path, session: Session) -> Path:
    return write(root, list(session.events))


def test_A111_calls_and_results_that_do_not_pair_are_explained(tmp_path: Path) -> None:
    session = new_session(ID)
    append_turn(session, 1, calls=("x", "y"))
    events = [event for event in session.events if event.type != "tool/result"]
    renumbered = [json.loads(encode_event(event)) | {"seq": i} for i, event in enumerate(events)]
    rows = [json.dumps(event, separators=(",", ":")).encode() for event in renumbered]
    path = put(tmp_path, [lines_of(tmp_path / "a", 0)[0], *rows])
    findings = check_log(path).all_findings
    assert [(item.code, item.seq) for item in findings] == [("answer-filled", 4)] * 2
    assert "x1" in findings[0].message
    assert check_log(path).exit_status == 1
    assert opens(tmp_path) == len(rows)


def test_S83_an_open_turn_is_told_with_what_closes_it(tmp_path: Path) -> None:
    session = new_session(ID)
    session.append(TurnStart(turn=1))
    session.append(StepStart(turn=1, step=1))
    (finding,) = check_log(session_log(tmp_path, session)).all_findings
    assert (finding.code, finding.seq) == ("open-turn", 0)
    assert "2 more events" in finding.on_open


def test_S132_a_header_that_does_not_fit_its_events_is_repaired(tmp_path: Path) -> None:
    marker = SessionEvent(type=EndSeed.type, seq=3, time=1, data=EndSeed(inherited=True))
    path = write(tmp_path, [*sample_events(3), marker])
    assert ("unfit-log", "error") in codes(check_log(path))
    repair = repair_to_copy(path, tmp_path / "copy.jsonl")
    assert (repair.event_count, repair.reseeded) == (4, True)
    assert codes(check_log(repair.target)) == []


def test_S135_a_log_in_the_wrong_place(tmp_path: Path) -> None:
    path = write(tmp_path, sample_events(3))
    moved = path.parent.rename(path.parent.parent / "other")
    assert codes(check_store(tmp_path)) == [("wrong-place", "error")]
    assert "belongs in" in str(check_store(tmp_path))
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes((moved / path.name).read_bytes())
    copy.chmod(0o600)
    assert codes(check_log(copy)) == []


def test_S136_a_name_of_another_format(tmp_path: Path) -> None:
    path = write(tmp_path, sample_events(3))
    path.rename(path.with_name("session.v6.jsonl"))
    assert codes(check_store(tmp_path)) == [("wrong-name", "error")]
    assert opens(tmp_path) is None


V0 = (
    b'{"type":"session","version":0,"id":"sample","createdAt":1789000000000,"cwd":"/srv/demo"}\n'
    b'{"type":"turn/start","seq":0,"time":1,"data":{"turn":1}}\n'
    b'{"type":"step/start","seq":1,"time":1,"data":{"turn":1,"step":1}}\n'
    b'{"type":"step/end","seq":2,"time":2,"data":{"turn":1,"step":1}}\n'
    b'{"type":"turn/end","seq":3,"time":2,"data":{"turn":1,"reason":{"kind":"completed"}}}\n'
)


def test_S176_an_older_format_is_told_and_judged_by_what_it_becomes(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.unlink()
    path = path.with_name("session.jsonl")
    path.touch(mode=0o600)
    path.write_bytes(V0)
    log = only(path)
    assert [(item.code, item.severity) for item in log.findings] == [("older-format", "warning")]
    assert (log.version, log.session_id, log.event_count) == (0, ID, opens(tmp_path))
    path.write_bytes(V0.replace(b'"seq":1', b'"seq":7'))
    assert codes(check_log(path)) == [("older-format", "error")]
    assert opens(tmp_path) is None
    assert path.read_bytes() != V0
    moved = path.rename(tmp_path / "old.jsonl")
    assert "its name must say its format" in str(check_log(moved))


def test_S134_two_encodings_in_a_folder_and_in_a_root(tmp_path: Path) -> None:
    write(tmp_path, sample_events(3))
    write(tmp_path, sample_events(3), session_id="b")
    write(tmp_path, sample_events(3), session_id="c", compression="zstd")
    (finding,) = check_store(tmp_path).all_findings
    assert finding.code == "two-encodings"
    assert "/c/" in str(finding.path)
    other = write(tmp_path / "x", sample_events(3), compression="zstd")
    path = write(tmp_path, session_id="d").parent / other.name
    path.write_bytes(other.read_bytes())
    path.chmod(0o600)
    findings = check(path.parent).all_findings
    assert ("two-encodings", path.parent) in [(item.code, item.path) for item in findings]


def test_S145_one_id_in_two_projects(tmp_path: Path) -> None:
    path = write(tmp_path, sample_events(3))
    header = sample_header(ID, cwd="/srv/other")
    log = JsonlStore(tmp_path / "x", "none").create(header, 0)
    log.flush()
    log.close()
    assert log.path is not None
    log.path.parent.parent.rename(tmp_path / project_segment("/srv/other"))
    found = [item for item in check_store(tmp_path).all_findings if item.code == "stored-twice"]
    assert len(found) == 2
    assert path in [item.path for item in found]


def test_what_stands_in_the_place_of_folders_and_locks_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, sample_events(3))
    (tmp_path / "--no-folder--").touch(mode=0o600)
    lock = path.parent / "session.lock"
    lock.unlink()
    lock.mkdir(mode=0o700)
    report = check_store(tmp_path)
    assert sorted(codes(report)) == [("bad-lock", "warning"), ("stray-file", "warning")]
    assert all(f"{place}\n" in str(report) for place in (lock, tmp_path / "--no-folder--"))
    assert opens(tmp_path) == 3


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_permissions_and_what_was_left_behind(tmp_path: Path) -> None:
    path = write(tmp_path, sample_events(3))
    path.chmod(0o644)
    (path.parent / ".session.v4.jsonl.00ff.tmp").write_bytes(b"half")
    (path.parent.parent / "notes.txt").write_text("x", encoding="utf-8")
    (path.parent.parent / "gone").mkdir(mode=0o700)
    (path.parent.parent / "gone" / "session.lock").touch()
    report = check_store(tmp_path)
    assert sorted(codes(report)) == [
        ("no-log", "warning"),
        ("permissions", "warning"),
        ("stray-file", "warning"),
        ("stray-file", "warning"),
    ]
    assert report.exit_status == 1
    assert opens(tmp_path) == 3


def test_a_repair_keeps_what_is_before_the_damage_and_touches_nothing_else(tmp_path: Path) -> None:
    lines = lines_of(tmp_path / "a", 6)
    path = put(tmp_path, [*lines[:4], b"\0\0\0", *lines[5:]])
    before = path.read_bytes()
    repair = repair_to_copy(path, tmp_path / "copy.jsonl.zstd")
    assert (repair.event_count, repair.lost_rows) == (3, 3)
    assert path.read_bytes() == before
    assert codes(check_log(repair.target)) == []
    with pytest.raises(FileExistsError):
        repair_to_copy(path, repair.target)


def test_a_repair_steps_over_rows_that_only_repeat(tmp_path: Path) -> None:
    lines = lines_of(tmp_path / "a", 6)
    path = put(tmp_path, [*lines[:4], *lines[2:]])
    assert opens(tmp_path) is None
    repair = repair_to_copy(path, tmp_path / "copy.jsonl")
    assert (repair.event_count, repair.lost_rows) == (6, 2)
    assert repair.target.read_bytes() == b"".join(line + b"\n" for line in lines)


def test_a_repair_needs_a_header(tmp_path: Path) -> None:
    path = put(tmp_path, [b"{}", *lines_of(tmp_path / "a", 3)[1:]])
    with pytest.raises(RepairRefusedError, match="header"):
        repair_to_copy(path, tmp_path / "copy.jsonl")
    assert not (tmp_path / "copy.jsonl").exists()


def test_the_command_prints_a_report_and_tells_by_its_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of(tmp_path / "a", 6)
    path = put(tmp_path, [*lines[:4], b"{", *lines[5:]])
    assert main([str(path)]) == 2
    assert "ERROR damage (line 5, seq 3, byte " in capsys.readouterr().out
    assert main([str(path), "--repair", str(tmp_path / "copy.jsonl")]) == 0
    assert "3 events kept, 3 lines left out" in capsys.readouterr().out
    assert main([str(path), "--repair", str(path)]) == 2
    assert "no copy was written" in capsys.readouterr().err
    assert main([str(tmp_path / "copy.jsonl")]) == 0
    assert main([str(tmp_path / "nothing")]) == 2


def test_the_module_is_a_command(tmp_path: Path) -> None:
    path = write(tmp_path, sample_events(3))
    command = [sys.executable, "-m", "dsh_session_jsonl.doctor", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 clean" in done.stdout


def test_S22_a_damaged_stream_is_told(tmp_path: Path) -> None:
    lines = WORKED_EXAMPLE.replace(b'"dt":[5,0,-2]', b'"dt":[5,0]').split(b"\n")[:-1]
    path = tmp_path / "copy.jsonl"
    path.touch(mode=0o600)
    path.write_bytes(b"\n".join([*lines, b""]))
    (finding,) = check_log(path).all_findings
    assert (finding.code, finding.seq) == ("bad-stream", 5)


def message(text: str) -> UserMessageEvent:
    return UserMessageEvent(
        message=Message(id=MessageId(text), role="user", content=(), source=UserSource())
    )


def test_L207_an_empty_message_is_told(tmp_path: Path) -> None:
    session = new_session(ID)
    session.append(message("m"), surface_op="append")
    (finding,) = check_log(session_log(tmp_path, session)).all_findings
    assert (finding.code, finding.seq) == ("content-filled", 0)


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """The bytes of a log with a few changes."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        kind = draw(st.sampled_from(["flip", "cut", "insert", "drop", "repeat", "zeros"]))
        size = draw(st.integers(1, 120))
        if kind == "flip" and at < len(data):
            data[at] ^= draw(st.integers(1, 255))
        elif kind == "cut":
            del data[at:]
        elif kind == "insert":
            data[at:at] = draw(st.sampled_from([b"\n", b"{}\n", b"\0", b'"', b"\xff"]))
        elif kind == "drop":
            del data[at : at + size]
        elif kind == "repeat":
            data[at:at] = data[at : at + size]
        else:
            data += bytes(size)
    return bytes(data)


@BOTH
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_S140_S141_the_store_opens_what_the_doctor_says_it_opens(
    tmp_path_factory: pytest.TempPathFactory, compression: Compression, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("store")
    batches = [sample_events(2), sample_events(2, start=2), sample_events(3, start=4)]
    path = write(root, *batches, compression=compression)
    path.write_bytes(data.draw(damaged(path.read_bytes())))
    log = only(path)
    opened = opens(root, compression)
    assert log.opens == (opened is not None), (log.findings, opened)
    if opened is not None:
        assert log.event_count == opened
    if log.session_id is not None:
        target = root / f"copy.jsonl{'.zstd' if compression == 'zstd' else ''}"
        try:
            repair = repair_to_copy(path, target)
        except RepairRefusedError:
            return
        again = only(target)
        assert again.opens
        assert again.event_count == repair.event_count >= (opened or 0)
