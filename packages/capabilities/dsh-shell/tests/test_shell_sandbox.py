"""Confined commands, with bubblewrap where it works."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, cast

import anyio
import anyio.to_thread
import pytest

import dsh_shell
from dsh_agent import Agent
from dsh_session import SessionEvent
from dsh_shell import (
    ExitStatus,
    Finished,
    Sandbox,
    SandboxError,
    SandboxModeEvent,
    SandboxPolicy,
    texts,
)
from dsh_shell import _landlock_run as runner  # noqa: PLC2701  # the program that is tested
from dsh_shell.bubblewrap import Bubblewrap, WrappedCommand
from dsh_shell.sandbox import escalation
from dsh_shell.testing import ShellBench, shell_bench, until
from dsh_system_prompt import render_contexts
from dsh_tools import ToolExecutionResult, ToolSuccess
from dsh_tools.testing import code_of, text_of, tool_bench


def _bubblewrap_problem() -> str:
    program = shutil.which("bwrap")
    if program is None:
        return "bubblewrap is not installed"
    frame = ["--unshare-pid", "--unshare-ipc", "--ro-bind", "/", "/", "--proc", "/proc"]
    probe = subprocess.run([program, *frame, "true"], capture_output=True, text=True)
    return "" if probe.returncode == 0 else f"bubblewrap cannot make namespaces: {probe.stderr}"


PROBLEM = _bubblewrap_problem()
needs_bubblewrap = pytest.mark.skipif(bool(PROBLEM), reason=PROBLEM or "works")


@pytest.fixture
def workspace() -> Iterator[Path]:
    # Not below the folders for temporary files, which a confined command may change.
    home = Path.home().resolve()
    if home.is_relative_to(Path(tempfile.gettempdir()).resolve()):
        pytest.skip(f"{home} lies among the temporary files, which a confined command may change")
    with tempfile.TemporaryDirectory(dir=home, prefix="dsh-sandbox-test-") as folder:
        (Path(folder) / "w").mkdir()
        yield Path(folder) / "w"


@asynccontextmanager
async def bench(root: Path, mode: str, **config: object) -> AsyncIterator[ShellBench]:
    settings = {"sandbox": {"mode": mode}, "bash": {}, "spill_root": root / "s", **config}
    async with shell_bench(root, **settings) as b:
        yield b


def sandbox_of(result: ToolExecutionResult) -> Any:
    assert isinstance(result, ToolSuccess), text_of(result)
    return cast("Any", result.value)["sandbox"]


# ---- modes ----------------------------------------------------------------------------------


async def test_C57_the_last_event_of_the_session_decides(tmp_path: Path) -> None:
    async with bench(tmp_path, "workspace-write") as b:
        assert b.sandbox.mode_of(None) == "workspace-write"
        assert b.sandbox.mode_of(b.agent.session) == "workspace-write"
        b.sandbox.set_mode(b.agent, "danger-full-access")
        b.sandbox.set_mode(b.agent, "read-only", source="delegation")
        events: Sequence[SessionEvent] = b.agent.session.events
        assert events[-1].data == SandboxModeEvent(mode="read-only", source="delegation")
        assert b.sandbox.mode_of(b.agent.session) == "read-only"
        other = b.tools.agent(cwd=str(tmp_path))
        assert b.sandbox.mode_of(other.session) == "workspace-write"
        # A word from a later version widens nothing.
        b.agent.session.append(SandboxModeEvent(mode="everything"))
        assert b.sandbox.mode_of(b.agent.session) == "read-only"
        assert b.sandbox.policy(b.agent, "workspace-write") == SandboxPolicy(
            "workspace-write", str(tmp_path)
        )


async def test_C57_T109_the_model_is_told_the_mode(tmp_path: Path) -> None:
    async with bench(tmp_path, "workspace-write") as b:
        for mode, text in (
            (None, texts.SANDBOX_WORKSPACE.format(root=tmp_path)),
            ("read-only", texts.SANDBOX_READ_ONLY),
            ("danger-full-access", texts.SANDBOX_OPEN),
        ):
            if mode is not None:
                b.sandbox.set_mode(b.agent, mode)  # type: ignore[arg-type]  # one of the modes
            assembly = await b.tools.ctx.system_prompt.assemble(b.agent, agent=b.agent)
            rendered = render_contexts(assembly)
            assert rendered is not None
            assert text in rendered.text


# ---- refusing -------------------------------------------------------------------------------


async def test_C59_what_cannot_be_confined_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_shell.bubblewrap.PROGRAM", "no-such-program")
    settings: dict[str, object] = {"mode": "workspace-write", "accept_partial": False}
    async with bench(tmp_path, "workspace-write", sandbox=settings) as b:
        for arguments in ({}, {"run_in_background": True}):
            result = await b.bash(f"touch {tmp_path}/f", **arguments)
            assert code_of(result) == "SANDBOX_UNAVAILABLE"
            assert "bubblewrap" in text_of(result)
        b.sandbox.set_mode(b.agent, "danger-full-access")
        assert text_of(await b.bash("echo open")) == "open"
    assert not (tmp_path / "f").exists()


async def test_C59_C106_a_sandbox_that_is_gone_is_not_gone_around(tmp_path: Path) -> None:
    async with tool_bench() as tools:
        settings = {"bash": {"require_sandbox": True}, "spill_root": tmp_path / "s"}
        await tools.ctx.plugin(dsh_shell, settings)
        result = await tools.run("bash", command=f"touch {tmp_path}/f", description="d")
    assert code_of(result) == "SANDBOX_UNAVAILABLE"
    assert not (tmp_path / "f").exists()


def finished(code: int, stderr: bytes, stdout: bytes = b"") -> Finished:
    return Finished(
        status=ExitStatus(code=code),
        stdout=stdout,
        stderr=stderr,
        stdout_lossy=False,
        stderr_lossy=False,
        stdout_file=None,
        stderr_file=None,
        timed_out=False,
        aborted=False,
        held_open=False,
        survivors=False,
    )


def test_C59_a_failure_of_the_runner_is_told_from_a_denial() -> None:
    command = WrappedCommand([])
    assert command.runner_failed(finished(1, b"bwrap: No permissions\nmore")) == (
        "bwrap: No permissions"
    )
    assert command.runner_failed(finished(0, b"bwrap: x")) is None
    assert command.runner_failed(finished(1, b"x\nbwrap: y")) is None
    assert command.runner_failed(finished(1, b"bwrap: y", b"it ran")) is None
    assert command.denied(finished(1, b"touch: cannot touch 'f': Read-only file system"))
    assert not command.denied(finished(0, b"Read-only file system"))
    assert not command.denied(finished(1, b"no such file"))


async def test_C57_C106_parameters_follow_a_sandbox_that_comes_and_goes(tmp_path: Path) -> None:
    async with tool_bench() as tools:

        def offered() -> bool:
            schema = next(each for each in tools.tools.schemas() if each.name == "bash")
            return "sandbox_permissions" in str(schema.parameters)

        await tools.ctx.plugin(dsh_shell, {"spill_root": tmp_path / "s"})
        await tools.ctx.settled()
        assert not offered()
        async with tools.ctx.plugin(Sandbox):
            await tools.ctx.settled()
            assert offered()
        await tools.ctx.settled()
        assert not offered()


@pytest.mark.parametrize(
    ("mode", "path", "allowed"),
    [
        ("read-only", "/w/f", False),
        ("workspace-write", "/w/f", True),
        ("workspace-write", "/w", True),
        ("workspace-write", "/w2/f", False),
        ("workspace-write", "/", False),
        ("workspace-write", os.path.realpath("/tmp") + "/x", True),
        ("danger-full-access", "/etc/x", True),
    ],
)
def test_C58_what_a_policy_allows(mode: Any, path: str, allowed: bool) -> None:
    assert SandboxPolicy(mode, "/w").may_change(path) is allowed


# ---- confining ------------------------------------------------------------------------------


@needs_bubblewrap
async def test_C58_C59_read_only_changes_nothing(workspace: Path) -> None:
    (workspace / "f").write_text("old", encoding="utf-8")
    async with bench(workspace, "read-only") as b:
        result = await b.bash(
            f"cat f; echo; for p in f {workspace.parent}/g /tmp/dsh-x; do echo new > $p; done; false"
        )
        text = text_of(result)
        assert text.startswith("old\n")
        assert text.endswith(f"{texts.DENIED.format(mode='read-only')}\n[exit code: 1]")
        assert sandbox_of(result) == {
            "mode": "read-only",
            "enforcement": "full",
            "denied": True,
            "escalatable": False,
        }
        assert text_of(await b.bash("pwd; echo $$")).startswith(f"{workspace}\n")
    assert (workspace / "f").read_text("utf-8") == "old"
    assert not (workspace.parent / "g").exists()


@needs_bubblewrap
async def test_C58_C59_workspace_write_changes_the_workspace_and_temporary_files(
    workspace: Path,
) -> None:
    (workspace / "out").symlink_to(workspace.parent)
    name = f"dsh-sandbox-test-{os.getpid()}"
    async with bench(workspace, "workspace-write") as b:
        write = f"echo in > f; echo t > /tmp/{name}; cat f; rm /tmp/{name}; echo t > /tmp/{name}"
        assert text_of(await b.bash(write)) == "in"
        for attack in (
            f"echo x > {workspace.parent}/g",
            "echo x > out/g",
            "echo x > ../g",
            f"mv /tmp/{name} {workspace.parent}/g",
            f"mount -o remount,rw / ; echo x > {workspace.parent}/g",
            f"echo x > /proc/1/root{workspace.parent}/g",
            f"echo x > /proc/{os.getpid()}/root{workspace.parent}/g",
            f"unshare -Um bash -c 'mount -o remount,rw /; echo x > {workspace.parent}/g'",
            f"mknod /tmp/{name}-d b 8 0 && cat /tmp/{name}-d > {workspace.parent}/g",
            f"ln {workspace.parent}/../.bashrc /tmp/{name}-l && echo x > {workspace.parent}/g",
        ):
            await b.bash(attack)
            assert not (workspace.parent / "g").exists(), attack
            assert (workspace / "f").exists(), attack


@needs_bubblewrap
async def test_C59_settings_of_the_kernel_cannot_be_changed(workspace: Path) -> None:
    async with bench(workspace, "workspace-write") as b:
        # Writes back what it reads: where it succeeds, nothing is changed either.
        result = await b.bash(
            'f=/proc/sys/kernel/core_pattern; v=$(cat $f); echo "$v" > $f && echo written'
        )
        assert "Read-only file system" in text_of(result)
        assert "written" not in text_of(result)


@needs_bubblewrap
async def test_C59_the_whole_system_as_workspace_does_not_uncover_processes(
    workspace: Path,
) -> None:
    async with bench(workspace, "workspace-write", sandbox={"mode": "workspace-write"}) as b:
        agent = b.tools.agent(cwd="/")
        script = f"ls -d /proc/{os.getpid()}; echo x > {workspace}/f"
        given = {"command": script, "description": "d"}
        result = await b.tools.run_as(agent, "bash", **given)
        assert "No such file" in text_of(result)
        assert (workspace / "f").exists()


@needs_bubblewrap
async def test_C43_C59_a_confined_command_cannot_look_into_the_host(workspace: Path) -> None:
    async with bench(workspace, "workspace-write") as b:
        result = await b.bash(f"cat /proc/{os.getpid()}/environ && echo read")
        assert text_of(result).endswith("[exit code: 1]")


@needs_bubblewrap
async def test_C59_a_confined_command_sees_its_own_processes_only(workspace: Path) -> None:
    async with bench(workspace, "workspace-write") as b:
        result = await b.bash(f"kill -0 {os.getpid()} 2>&1 || ls -d /proc/[0-9]* | wc -l")
    assert int(text_of(result).splitlines()[-1]) < 10


@needs_bubblewrap
async def test_C59_a_confined_command_outlives_the_thread_that_started_it(workspace: Path) -> None:
    mechanism = Bubblewrap()
    policy = SandboxPolicy("workspace-write", str(workspace))
    assert await mechanism.usable(policy)
    argv = mechanism.confine(["sh", "-c", "sleep 0.3; echo ok"], policy).argv
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        started.append(subprocess.Popen(argv, stdout=subprocess.PIPE))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    output, _ = await anyio.to_thread.run_sync(lambda: started[0].communicate(timeout=5))
    assert (output, started[0].returncode) == (b"ok\n", 0)


@needs_bubblewrap
async def test_C41_C59_a_confined_command_has_its_grace_to_clean_up(workspace: Path) -> None:
    async with bench(workspace, "workspace-write", bash={"grace_ms": 3000}) as b:
        trap = "trap 'echo cleaned > f; exit 0' TERM; while :; do sleep 0.05; done"
        result = await b.bash(trap, timeoutMs=300)
        assert "[timed out after 300ms]" in text_of(result)
        assert (workspace / "f").read_text("utf-8") == "cleaned\n"


@needs_bubblewrap
async def test_C42_C59_what_a_confined_command_leaves_behind_goes_with_the_runtime(
    workspace: Path,
) -> None:
    async with bench(workspace, "workspace-write", bash={"grace_ms": 300}) as b:
        for leave in ("sleep 62.5 &", "setsid sleep 62.5 >/dev/null 2>&1 &"):
            result = await b.bash(f"{leave} echo started")
            assert text_of(result).startswith("started")
        assert len(left_running(b"62.5")) > 0
    assert left_running(b"62.5") == []


@needs_bubblewrap
async def test_C51_C59_a_confined_command_ends_at_its_limit(workspace: Path) -> None:
    async with bench(workspace, "workspace-write", bash={"grace_ms": 300}) as b:
        # Even what left its group goes, with the namespace.
        result = await b.bash("setsid sleep 61.5 & trap '' TERM; sleep 61.5 & wait", timeoutMs=300)
        assert "[timed out after 300ms]" in text_of(result)
        assert left_running(b"61.5") == []


HOST = """
import os, pathlib, signal, sys, anyio
from dsh_shell.testing import shell_bench, until

async def main():
    root = pathlib.Path(sys.argv[2])
    async with shell_bench(root, sandbox={"mode": "workspace-write"}) as b:
        command = "setsid sleep 63.5 & echo up > f; exec sleep 63.5"
        await b.run("bash", command=command, description="d", run_in_background=True)
        await until((root / "f").exists)
        os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main, backend=sys.argv[1])
"""


@needs_bubblewrap
async def test_C46_C59_an_abrupt_end_of_the_host_ends_confined_commands(
    workspace: Path, anyio_backend_name: str
) -> None:
    with anyio.fail_after(15):
        argv = [sys.executable, "-c", HOST, anyio_backend_name, str(workspace)]
        await anyio.run_process(argv, check=False)
        assert (workspace / "f").exists()
        await until(lambda: left_running(b"63.5") == [])


def left_running(word: bytes) -> list[Path]:
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if _runs(path, word)]


def _runs(path: Path, word: bytes) -> bool:
    try:
        return word in path.read_bytes()
    except OSError:
        return False


# ---- what confines --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["read-only", "workspace-write"])
async def test_C59_a_program_that_a_command_may_have_put_there_does_not_confine(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    planted = workspace / "bin/bwrap-elsewhere"
    planted.parent.mkdir()
    planted.write_text(f"#!/bin/sh\ntouch {workspace.parent}/ran\n", encoding="utf-8")
    planted.chmod(0o755)
    monkeypatch.setattr("dsh_shell.bubblewrap.PROGRAM", planted.name)
    monkeypatch.setattr("sys.executable", str(planted))
    monkeypatch.setenv("PATH", f"{planted.parent}:.:bin:{os.environ['PATH']}")
    monkeypatch.chdir(workspace)
    async with bench(workspace, mode) as b:
        assert code_of(await b.bash("true")) == "SANDBOX_UNAVAILABLE"
    assert not (workspace.parent / "ran").exists()


# ---- Landlock -------------------------------------------------------------------------------


def _landlock_problem() -> str:
    probe = subprocess.run(
        [sys.executable, "-I", "-S", runner.__file__, "--", "true"], capture_output=True, text=True
    )
    return "" if probe.returncode == 0 else f"no Landlock here: {probe.stderr}"


LANDLOCK_PROBLEM = _landlock_problem()
needs_landlock = pytest.mark.skipif(bool(LANDLOCK_PROBLEM), reason=LANDLOCK_PROBLEM or "works")


@needs_landlock
async def test_C59_landlock_where_bubblewrap_is_not(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_shell.bubblewrap.PROGRAM", "no-such-program")
    (workspace / "out").symlink_to(workspace.parent)
    (workspace.parent / "old").write_text("old", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(workspace))
    (workspace / "ctypes.py").write_text("raise SystemExit(0)", encoding="utf-8")
    async with bench(workspace, "workspace-write") as b:
        inside = await b.bash("echo in > f; mkdir d; mv f d/f; cat d/f; echo > /dev/null")
        assert text_of(inside) == "in"
        assert sandbox_of(inside)["enforcement"] == "partial"
        outside = workspace.parent
        for attack in (
            f"echo x > {outside}/g",
            "echo x > out/g",
            f"mv d {outside}/g",
            f"ln d/f {outside}/g",
            f"mkdir {outside}/g",
            f"mkfifo {outside}/g",
            f"echo x > /proc/{os.getpid()}/root{outside}/g",
            f"unshare -Urm bash -c 'mount -t tmpfs t {outside}; echo x > {outside}/g'",
            f"{sys.executable} -c 'import os; os.truncate(\"{outside}/old\", 0)'",
            f"rm {outside}/old",
            f"kill -STOP {os.getpid()}",
        ):
            assert text_of(await b.bash(attack)).startswith("[stderr]") or "mv" in attack
            assert not (outside / "g").exists(), attack
            assert (outside / "old").read_text("utf-8") == "old", attack
        b.sandbox.set_mode(b.agent, "read-only")
        denied = await b.bash("echo x > f")
        assert texts.DENIED.format(mode="read-only") in text_of(denied)
        assert not (workspace / "f").exists()


@needs_landlock
async def test_C59_a_landlock_runner_that_cannot_start_says_so(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_shell.bubblewrap.PROGRAM", "no-such-program")
    async with bench(workspace, "workspace-write") as b:
        await anyio.Path(workspace).rmdir()
        result = await b.bash("true", workdir="/")
    assert code_of(result) == "SANDBOX_UNAVAILABLE"
    assert "dsh-landlock: " in text_of(result)


# ---- asking for more ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("current", "wanted", "why"),
    [
        ("read-only", "workspace-write", None),
        ("read-only", None, "please"),
        ("read-only", "workspace-write", "  "),
        ("workspace-write", "workspace-write", "please"),
        ("danger-full-access", "workspace-write", "please"),
    ],
)
def test_C60_a_malformed_escalation_is_refused(current: Any, wanted: Any, why: str | None) -> None:
    with pytest.raises(SandboxError) as caught:
        escalation(current, wanted, why)
    assert caught.value.code == "SANDBOX_ESCALATION"


class Approval:
    """Answers as told, and keeps what it was asked."""

    def __init__(self, answer: str) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str | None]] = []

    async def request(
        self,
        agent: Agent,
        tool_name: str,
        call_id: str | None = None,
        reason: str | None = None,
        signal: object = None,
    ) -> str:
        assert call_id is not None
        self.asked.append((tool_name, reason))
        return self.answer


@needs_bubblewrap
@pytest.mark.parametrize("answer", ["allowed-once", "rejected", "cancelled", "unavailable"])
async def test_C60_a_wider_mode_needs_approval_and_holds_for_one_command(
    workspace: Path, answer: Literal["allowed-once", "rejected"]
) -> None:
    approval = Approval(answer)
    async with bench(workspace, "read-only") as b:
        b.tools.ctx.provide("approval", approval)
        denied = await b.bash("echo x > f")
        assert text_of(denied).splitlines()[-2:] == [texts.ESCALATE, "[exit code: 1]"]
        wider = {"sandbox_permissions": "workspace-write", "justification": "to build"}
        result = await b.bash("echo x > f", **wider)
        assert approval.asked == [("bash", "wider file access (workspace-write): to build")]
        allowed = answer == "allowed-once"
        assert (workspace / "f").exists() is allowed
        assert code_of(result) == (None if allowed else "SANDBOX_ESCALATION")
        assert sandbox_of(await b.bash("echo y > f"))["denied"]
        narrower = await b.bash("true", sandbox_permissions="workspace-write")
        assert code_of(narrower) == "SANDBOX_ESCALATION"
        assert len(approval.asked) == 1


@needs_bubblewrap
async def test_C60_without_anybody_to_ask_nothing_is_widened(workspace: Path) -> None:
    async with bench(workspace, "read-only") as b:
        wider = {"sandbox_permissions": "danger-full-access", "justification": "to build"}
        assert "was not allowed (unavailable)" in text_of(await b.bash("echo x > f", **wider))
    assert not (workspace / "f").exists()


async def test_C60_T38_the_parameters_are_there_with_the_sandbox_only(tmp_path: Path) -> None:
    both: list[tuple[dict[str, object], bool]] = [({"sandbox": {}}, True), ({}, False)]
    for settings, there in both:
        async with tool_bench() as tools:
            await tools.ctx.plugin(dsh_shell, {**settings, "spill_root": tmp_path / "s"})
            await tools.ctx.settled()
            schema = next(each for each in tools.tools.schemas() if each.name == "bash")
            assert ("sandbox_permissions" in str(schema.parameters)) is there
            assert ("justification" in str(schema.parameters)) is there
            if not there:
                given = {"sandbox_permissions": "workspace-write", "justification": "x"}
                result = await tools.run("bash", command="true", description="d", **given)
                assert code_of(result) == "SANDBOX_ESCALATION"
