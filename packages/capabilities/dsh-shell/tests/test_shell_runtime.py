"""The subprocess runtime with real processes."""

import os
import signal
import sys
import time
import tracemalloc
from functools import partial
from pathlib import Path

import anyio
import pytest

from dsh_cordis import Context
from dsh_llm import AbortController
from dsh_shell import (
    Collect,
    ExitStatus,
    PipeReader,
    SpawnSpec,
    Spill,
    SubprocessError,
    SubprocessRuntime,
    child_environment,
)
from dsh_shell.testing import (
    bash_spec,
    group_is_alive,
    is_alive,
    open_descriptors,
    open_runtime,
    run_bash,
    until,
    until_output,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def spec_of(program: list[str], **changes: object) -> SpawnSpec:
    base: dict[str, object] = {
        "argv": program,
        "cwd": "/",
        "stdin": "ignore",
        "stdout": Collect(10_000),
        "stderr": Collect(10_000),
        "grace_ms": 1000,
    }
    return SpawnSpec(**{**base, **changes})  # type: ignore[arg-type]  # wrong values are tested too


# ---- starting -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        pytest.param({"argv": []}, "SPAWN_INVALID", id="no program"),
        pytest.param({"argv": "ls"}, "SPAWN_INVALID", id="text is no argv"),
        pytest.param({"argv": ["echo", "a\0b"]}, "SPAWN_INVALID", id="NUL"),
        pytest.param({"argv": ["echo", "\ud800"]}, "SPAWN_INVALID", id="lone surrogate"),
        pytest.param({"grace_ms": 0}, "SPAWN_INVALID", id="no grace"),
        pytest.param({"grace_ms": True}, "SPAWN_INVALID", id="true is no number"),
        pytest.param({"grace_ms": 2_147_483_648}, "SPAWN_INVALID", id="grace too long"),
        pytest.param({"cwd": "/nowhere"}, "SPAWN_FAILED", id="no directory"),
        pytest.param({"argv": ["/no/such/program"]}, "SPAWN_FAILED", id="no such program"),
        pytest.param({"argv": ["echo", "x" * 3_000_000]}, "SPAWN_FAILED", id="too long"),
    ],
)
async def test_C40_what_cannot_be_started_is_refused(changes: dict[str, object], code: str) -> None:
    async with open_runtime() as runtime:
        before = open_descriptors()
        with pytest.raises(SubprocessError) as caught:
            await runtime.spawn(spec_of(["true"], **changes))
        assert caught.value.code == code
        assert runtime.children == ()
        assert open_descriptors() == before


async def test_C40_an_aborted_signal_starts_nothing(tmp_path: Path) -> None:
    controller = AbortController()
    controller.abort()
    async with open_runtime() as runtime:
        with pytest.raises(SubprocessError) as caught:
            await runtime.spawn(spec_of(["touch", str(tmp_path / "f")], signal=controller.signal))
    assert caught.value.code == "SPAWN_ABORTED"
    assert not (tmp_path / "f").exists()


async def test_C40_input_as_data_and_as_a_pipe() -> None:
    async with open_runtime() as runtime:
        with anyio.fail_after(5):
            data = b"x" * 300_000
            end = await runtime.run(bash_spec("wc -c", stdin=data))
            assert end.stdout.strip() == b"300000"
            # A child that does not read leaves the writer alone.
            assert (await runtime.run(bash_spec("exit 0", stdin=data))).exit_code == 0
            child = await runtime.spawn(spec_of(["cat"], stdin="pipe", stdout="pipe"))
            assert child.stdin is not None
            assert isinstance(child.stdout, PipeReader)
            await child.stdin.send(b"hello")
            assert await child.stdout.receive() == b"hello"
            child.stdin.close()
            assert await child.stdout.receive() == b""
            child.stdout.close()
            assert await child.wait() == ExitStatus(code=0)


async def test_C43_credentials_and_own_names_are_not_inherited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("DEEPSEEK_API_KEY", "my_token", "Db_Password", "CLIENT_SECRET", "DSH_HOME"):
        monkeypatch.setenv(name, "leak-me-not")
    monkeypatch.setenv("PLAIN", "kept")
    monkeypatch.setenv("DROPPED", "leak-me-not")
    async with open_runtime() as runtime:
        spec = spec_of(["env"], env={"DROPPED": None, "BACK_TOKEN": "given"})
        text = (await runtime.run(spec)).stdout.decode()
        assert "leak-me-not" not in text
        assert "PLAIN=kept" in text
        assert "BACK_TOKEN=given" in text
        # Not of the helper process either, which anybody of this user can look into.
        environments = child_environments()
        assert environments
        assert not any(b"leak-me-not" in text for text in environments)


def child_environments() -> list[bytes]:
    found = Path("/proc").glob("[0-9]*/environ")
    return [path.read_bytes() for path in found if _parent_of(path) == os.getpid()]


def _parent_of(path: Path) -> int:
    try:
        return int((path.parent / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:
        return -1


def test_C43_overrides_come_last() -> None:
    host = {"A": "1", "A_KEY": "2", "dsh_x": "3"}
    assert child_environment({"A": None, "A_KEY": "4"}, host=host) == {"A_KEY": "4"}


# ---- ending ---------------------------------------------------------------------------------


async def test_C41_a_child_leads_its_own_group_and_session() -> None:
    async with open_runtime() as runtime:
        end = await run_bash(runtime, "ps -o pid=,pgid=,sid= -p $$")
        pid, group, session = end.stdout.split()
        assert pid == group == session


@pytest.mark.parametrize(
    ("command", "status"),
    [
        pytest.param("sleep 60", ExitStatus(signal="SIGTERM"), id="asked"),
        pytest.param("trap '' TERM; sleep 60 & wait", ExitStatus(signal="SIGKILL"), id="killed"),
        pytest.param("trap 'exit 0' TERM; sleep 60", ExitStatus(code=0), id="exits 0"),
        pytest.param("kill -STOP $$", ExitStatus(signal="SIGTERM"), id="stopped"),
        pytest.param("(trap '' TERM; sleep 60) & exec sleep 60", None, id="member survives TERM"),
        pytest.param("while :; do (sleep 60 &) ; sleep 0.01; done", None, id="keeps forking"),
    ],
)
async def test_C41_C51_C123_after_the_limit_the_whole_group_is_gone(
    command: str, status: ExitStatus | None
) -> None:
    async with open_runtime() as runtime:
        with anyio.fail_after(5):
            child = await runtime.spawn(bash_spec(f"echo $$; {command}", grace_ms=200))
            end = await runtime.run(bash_spec(f"echo $$; {command}", grace_ms=200), timeout_ms=150)
            child.terminate()
            child.terminate()
            await child.wait_for_exit()
        assert end.timed_out
        assert not end.aborted
        assert not end.survivors
        assert status is None or end.status == status
        assert not group_is_alive(int(end.stdout))
        assert not group_is_alive(child.pid)


async def test_C41_a_group_that_was_seen_gone_is_never_signalled_again() -> None:
    async with open_runtime() as runtime:
        with anyio.fail_after(5):
            child = await runtime.spawn(bash_spec("exit 0"))
            await child.wait_for_exit()
        child.terminate()
        assert not child.stopping


async def test_C42_a_left_over_member_lives_until_the_runtime_goes() -> None:
    async with open_runtime() as runtime:
        with anyio.fail_after(5):
            end = await run_bash(runtime, "sleep 60 >/dev/null 2>&1 & echo $!")
            left = int(end.stdout)
            assert end.exit_code == 0
            assert not end.held_open
        assert is_alive(left)
        assert len(runtime.children) == 1
    assert not is_alive(left)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("sleep 60 & echo started", id="in the group"),
        pytest.param("setsid sleep 60 & echo started", id="out of the group"),
        pytest.param("(while :; do echo -n .; sleep 1; done) & echo started", id="keeps writing"),
    ],
)
async def test_C42_C123_case_35_a_child_that_holds_the_output_is_not_waited_for(
    command: str,
) -> None:
    began = time.monotonic()
    async with open_runtime() as runtime:
        end = await run_bash(runtime, f"{command}; echo $! >&2", grace_ms=4000)
        assert time.monotonic() - began < 3
        assert (end.exit_code, end.timed_out, end.held_open) == (0, False, True)
        assert b"started" in end.stdout
        escaped = int(end.stderr)
    if is_alive(escaped):
        # A process that left the group is out of reach: a documented limit, not a surprise.
        assert command.startswith("setsid")
        os.kill(escaped, signal.SIGKILL)


async def test_C42_output_that_keeps_coming_is_waited_for_up_to_the_grace() -> None:
    async with open_runtime() as runtime:
        late = "(for i in 1 2 3 4; do sleep 0.1; echo $i; done) & echo 0"
        assert (await run_bash(runtime, late)).stdout.split() == [b"0", b"1", b"2", b"3", b"4"]
        endless = await run_bash(runtime, "(while sleep 0.05; do echo x; done) &", grace_ms=300)
        assert endless.held_open


async def test_C51_abort_and_limit_exclude_each_other() -> None:
    controller = AbortController()
    async with open_runtime() as runtime:
        with anyio.fail_after(5):
            spec = spec_of(
                ["bash", "-c", "trap 'echo bye; exit 0' TERM; echo up; sleep 60 & wait"],
                signal=controller.signal,
            )
            async with anyio.create_task_group() as tasks:

                async def abort() -> None:
                    await until(lambda: bool(runtime.children))
                    await until_output(runtime.children[0])
                    controller.abort()

                tasks.start_soon(abort)
                end = await runtime.run(spec, timeout_ms=60_000)
    assert (end.aborted, end.timed_out, end.exit_code) == (True, False, 0)
    assert end.stdout == b"up\nbye\n"


async def test_C46_native_cancellation_ends_the_group_before_it_goes_on(tmp_path: Path) -> None:
    async with open_runtime() as runtime:
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:

                async def cancel() -> None:
                    await until(lambda: bool(runtime.children))
                    await until_output(runtime.children[0])
                    tasks.cancel_scope.cancel()

                tasks.start_soon(cancel)
                await runtime.run(bash_spec("echo up; trap '' TERM; sleep 60 & wait", grace_ms=100))
            assert runtime.children == ()
            with anyio.CancelScope() as scope:
                scope.cancel()
                await runtime.run(bash_spec(f"sleep 60; touch {tmp_path}/f"))
            assert scope.cancelled_caught
            assert runtime.children == ()


async def test_C46_disposal_ends_all_children_side_by_side() -> None:
    async with Context() as ctx:
        plugin = ctx.plugin(SubprocessRuntime)
        await plugin
        runtime = ctx.get(SubprocessRuntime)
        assert runtime is not None
        stubborn = bash_spec("trap '' TERM; echo up; sleep 60 & wait", grace_ms=300)
        children = [await runtime.spawn(stubborn) for _ in range(5)]
        for child in children:
            await until_output(child)
        began = time.monotonic()
        with anyio.fail_after(5):
            await plugin.dispose()
            await plugin.dispose()
        assert time.monotonic() - began < 1.2
        assert not any(group_is_alive(child.pid) for child in children)
        with pytest.raises(SubprocessError) as caught:
            await runtime.spawn(bash_spec("true"))
        assert caught.value.code == "SUBPROCESS_CLOSED"


def is_dead(pid: int) -> bool:
    return not is_alive(pid)


HOST = """
import os, signal, sys, anyio
from dsh_shell.testing import open_runtime, bash_spec, until_output

async def main():
    async with open_runtime() as runtime:
        done = await runtime.spawn(bash_spec("exit 0"))
        await done.wait_for_exit()
        child = await runtime.spawn(bash_spec("sleep 600 & sleep 600 & echo $!; wait"))
        await until_output(child)
        print(child.pid, child.stdout.read().data.decode(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

anyio.run(main, backend=sys.argv[1])
"""


async def test_C46_an_abrupt_end_of_the_host_ends_its_children(anyio_backend_name: str) -> None:
    with anyio.fail_after(15):
        host = await anyio.run_process(
            [sys.executable, "-c", HOST, anyio_backend_name], check=False
        )
        pids = [int(word) for word in host.stdout.split()]
        assert len(pids) == 2
        for pid in pids:
            await until(partial(is_dead, pid))


# ---- collecting -----------------------------------------------------------------------------


async def test_C44_the_exact_last_bytes_are_kept() -> None:
    async with open_runtime() as runtime:
        child = await runtime.spawn(bash_spec("seq 1 5000", max_bytes=100))
        with anyio.fail_after(5):
            await child.wait()
        whole = "".join(f"{number}\n" for number in range(1, 5001)).encode()
        collector = child.stdout
        assert not isinstance(collector, PipeReader)
        assert collector is not None
        assert collector.read().data == whole[-100:]
        assert collector.read() == collector.read()
        assert (collector.lossy, collector.total_bytes) == (True, len(whole))
        later = collector.read(len(whole) - 7)
        assert (later.data, later.next_offset, later.lossy) == (whole[-7:], len(whole), False)
        assert collector.read(len(whole) + 5).data == b""
        assert collector.read(3).lossy


async def test_C45_a_spill_file_holds_the_whole_stream(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "a" / "b", 1_000_000, "../we ird\n")
    async with open_runtime() as runtime:
        end = await runtime.run(spec_of(["seq", "1", "5000"], stdout=Collect(100, spill)))
        small = await runtime.run(spec_of(["seq", "1", "5"], stdout=Collect(100, spill)))
    assert small.stdout_file is None
    assert end.stdout_file is not None
    assert end.stdout_file.read_bytes() == b"".join(b"%d\n" % n for n in range(1, 5001))
    assert end.stdout_file.stat().st_mode & 0o777 == 0o600
    assert end.stdout_file.parent.stat().st_mode & 0o777 == 0o700
    assert end.stdout_file.name.endswith("-we-ird.txt")
    assert list((tmp_path / "a" / "b").iterdir()) == [end.stdout_file]


async def test_C45_C124_a_flood_leaves_neither_memory_nor_a_file(tmp_path: Path) -> None:
    spill = Spill(tmp_path / "s", 8 * 1024 * 1024)
    async with open_runtime() as runtime:
        spec = spec_of(
            ["head", "-c", str(100 * 1024 * 1024), "/dev/zero"], stdout=Collect(64_000, spill)
        )
        tracemalloc.start()
        try:
            end = await runtime.run(spec, timeout_ms=30_000)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (end.exit_code, len(end.stdout), end.stdout_lossy) == (0, 64_000, True)
    assert peak < 2 * 1024 * 1024
    assert end.stdout_file is None
    assert list((tmp_path / "s").iterdir()) == []


async def test_C45_a_folder_that_cannot_be_used_costs_the_file_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path)
    async with open_runtime() as runtime:
        for folder in (tmp_path / "file" / "x", tmp_path / "link" / "x", tmp_path / "link"):
            spill = Spill(folder, 1_000_000)
            end = await runtime.run(spec_of(["seq", "1", "5000"], stdout=Collect(100, spill)))
            assert (end.exit_code, end.stdout_file, end.stdout_lossy) == (0, None, True)


async def test_a_stream_may_end_its_process() -> None:
    async with open_runtime() as runtime:
        with anyio.fail_after(5):
            end = await runtime.collect(
                ["yes"],
                cwd="/",
                stdout_bytes=1000,
                stderr_bytes=10,
                timeout_ms=60_000,
                grace_ms=1000,
                ends_beyond=True,
            )
    assert (end.stdout_lossy, end.timed_out, end.aborted) == (True, False, False)


async def test_nothing_is_left_open_after_many_commands() -> None:
    async with open_runtime() as runtime:
        await run_bash(runtime, "true")
        before = open_descriptors()
        for _ in range(30):
            await run_bash(runtime, "echo x; echo y >&2")
        for child in runtime.children:
            await child.wait_for_exit()
        with pytest.raises(SubprocessError):
            await runtime.spawn(spec_of(["/no/such/program"]))
        assert open_descriptors() == before
        assert runtime.children == ()
