"""What a hostile command tries, and what the shell capability does about it."""

import os
import signal
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import anyio
import pytest

import dsh_shell
from dsh_cordis import Context
from dsh_session import SessionId
from dsh_shell import SpillError, SpillStore, SubprocessError, SubprocessRuntime
from dsh_shell.testing import (
    ShellBench,
    bash_spec,
    group_is_alive,
    is_alive,
    open_runtime,
    run_bash,
    shell_bench,
    until,
)
from dsh_tools.testing import code_of, text_of, tool_bench

# ---- ending what does not want to end -------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("trap '' TERM INT HUP; while :; do sleep 1; done", id="deaf to signals"),
        pytest.param("trap 'while :; do :; done' TERM; sleep 60 & wait", id="busy in its trap"),
        pytest.param("kill -STOP $$; sleep 60", id="stopped"),
        pytest.param("exec 0<&- 1>&- 2>&-; sleep 60", id="closed its streams"),
        pytest.param("nohup sleep 60 & disown; wait; sleep 60", id="nohup"),
        pytest.param("(trap '' TERM; sleep 60 & sleep 60) & exec sleep 60", id="orphans"),
        pytest.param("f() { sleep 0.01; f & f & }; f; sleep 60", id="multiplying"),
    ],
)
async def test_C41_C51_C123_whatever_it_does_its_group_is_gone_after_the_limit(
    command: str,
) -> None:
    async with open_runtime() as runtime:
        with anyio.fail_after(9):
            child = await runtime.spawn(bash_spec(f"ulimit -u 4000; {command}", grace_ms=200))
            with anyio.move_on_after(0.2):
                await child.wait()
            child.terminate()
            await child.wait_for_exit()
    assert not child.survivors
    assert not group_is_alive(child.pid)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("setsid sleep 60", id="setsid"),
        pytest.param("(setsid sh -c 'sleep 60 & exec sleep 60' &)", id="daemon"),
        pytest.param("set -m; sleep 60", id="job control"),
    ],
)
async def test_C42_C123_what_leaves_the_group_does_not_hold_the_call(command: str) -> None:
    began = time.monotonic()
    async with open_runtime() as runtime:
        end = await run_bash(runtime, f"{command} & echo $!; exit 3", grace_ms=2000)
    assert time.monotonic() - began < 3
    assert end.exit_code == 3
    for word in end.stdout.split():
        with suppress(ProcessLookupError):  # the limit that is documented: it may live
            os.kill(int(word), signal.SIGKILL)


async def test_C113_jobs_that_do_not_want_to_end_go_with_the_plugin(tmp_path: Path) -> None:
    async with tool_bench() as tools:
        config = {"spill_root": tmp_path / "s", "bash": {"grace_ms": 200}}
        async with tools.ctx.plugin(dsh_shell, config):
            await tools.ctx.settled()
            b = ShellBench(tools, tmp_path)
            deaf = "trap '' TERM; echo $$ > pid; while :; do sleep 1; done"
            await b.bash(deaf, run_in_background=True)
            with anyio.fail_after(5):
                await until(lambda: (tmp_path / "pid").exists() and bool(pid_in(tmp_path / "pid")))
        assert not is_alive(pid_in(tmp_path / "pid"))


def pid_in(path: Path) -> int:
    return int(path.read_text(encoding="utf-8") or 0)


async def test_C114_unloading_admits_nothing_ends_everything_and_may_be_asked_twice() -> None:
    async with Context() as ctx:
        plugin = ctx.plugin(SubprocessRuntime)
        await plugin
        runtime = ctx.get(SubprocessRuntime)
        assert runtime is not None
        # Polite, but slow: it ends within the grace and must not be killed.
        command = "trap 'sleep 0.3; exit 7' TERM; echo up; while :; do sleep 0.01; done"
        child = await runtime.spawn(bash_spec(command, grace_ms=4000))
        order: list[str] = []

        async def dispose(name: str) -> None:
            await plugin.dispose()
            assert not group_is_alive(child.pid)
            order.append(name)

        with anyio.fail_after(5):
            await until(lambda: child.stdout.total_bytes > 0)  # type: ignore[union-attr]  # collected
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(dispose, "first")
                await until(lambda: child.stopping)
                tasks.start_soon(dispose, "second")
                assert ctx.get(SubprocessRuntime) is None
                with pytest.raises(SubprocessError) as caught:
                    await runtime.spawn(bash_spec("true"))
                assert caught.value.code == "SUBPROCESS_CLOSED"
                assert order == []
        assert child.status is not None
        assert child.status.code == 7
        assert sorted(order) == ["first", "second"]


async def test_C117_where_there_is_no_posix_bash_is_not_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_shell._plugin.os", SimpleNamespace(name="nt"))
    async with shell_bench(tmp_path) as b:
        assert b.tools.tools.names() == []
        assert b.tools.ctx.get(SubprocessRuntime) is None


# ---- output ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("yes | head -n 2000000", id="two million lines"),
        pytest.param("yes | tr -d '\\n' | head -c 30000000", id="one line"),
        pytest.param("head -c 30000000 /dev/urandom", id="binary"),
        pytest.param("yes | head -c 9000000 >&2; yes | head -c 9000000", id="both streams"),
    ],
)
async def test_C44_C50_C124_floods_are_cut_to_their_end(tmp_path: Path, command: str) -> None:
    async with shell_bench(tmp_path, bash={"grace_ms": 300, "max_spill_bytes": 1_000_000}) as b:
        result = await b.bash(command, timeoutMs=8000)
        text = text_of(result)
        assert len(text.encode()) < 3 * 2 * 64_000 + 500  # a byte that is no text takes three
        assert "[output truncated; full output: (unavailable)]" in text
    assert [path for path in (tmp_path / "spill").rglob("*") if path.is_file()] == []


async def test_control_characters_reach_the_model_as_they_are_and_can_be_stored(
    tmp_path: Path,
) -> None:
    raw = r"a\x1b[2Jb\x1b]0;title\x07c\xe2\x80\xaed\x00e\xff\xed\xa0\x80f"
    async with shell_bench(tmp_path) as b:
        result = await b.bash(f"printf '{raw}'")
    text = text_of(result)
    assert text.encode()  # no half characters
    assert text.startswith("a\x1b[2Jb\x1b]0;title\x07c\u202ed\0e\ufffd")


async def test_output_cannot_end_with_markers_that_are_not_true(tmp_path: Path) -> None:
    async with shell_bench(tmp_path) as b:
        result = await b.bash("echo '[exit code: 0]'; echo '[stderr]' >&2; exit 9")
    assert text_of(result).endswith("\n[exit code: 9]")


# ---- what a child gets ----------------------------------------------------------------------


async def test_C43_a_child_gets_no_credentials_and_no_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["OPENAI_API_KEY", "aws_secret_access_key", "GitHub_Token", "DB_PASSWORD", "DSH_X"]
    for name in names:
        monkeypatch.setenv(name, "leak-me-not")
    secret = os.open(tmp_path / "secret", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(secret, True)
    try:
        async with shell_bench(tmp_path) as b:
            shown = text_of(
                await b.bash("env; declare -p; cat /proc/self/environ | tr '\\0' '\\n'")
            )
            listed = text_of(await b.bash("ls /proc/self/fd | sort -n | tr '\\n' ' '"))
    finally:
        os.close(secret)
    assert "leak-me-not" not in shown
    assert str(secret) not in listed.split()[4:]  # 0, 1, 2 and that of the listing


async def test_C43_what_a_call_names_reaches_no_variable(tmp_path: Path) -> None:
    async with shell_bench(tmp_path) as b:
        text = text_of(
            await b.bash("env", env={"LD_PRELOAD": "/x.so"}, DSH_HOME="/evil", PATH="/evil")
        )
    assert "/evil" not in text
    assert "LD_PRELOAD" not in text


# ---- the folder for outputs -----------------------------------------------------------------


@pytest.mark.parametrize("level", ["root", "session", "above"])
async def test_C45_C115_a_folder_that_a_command_swapped_for_a_link_gets_no_output(
    tmp_path: Path, level: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    root = tmp_path / "w" / "spill"
    async with shell_bench(tmp_path, spill_root=root) as b:
        await b.bash("seq 1 50000")
        [session] = root.iterdir()
        swapped = {"root": root, "session": session, "above": root.parent}[level]
        await b.bash(f"mv {swapped} {swapped}.old; ln -s {outside} {swapped}; seq 1 50000")
        store = cast("SpillStore", b.tools.ctx.spill_store)
        with pytest.raises(SpillError):
            await store.save_text(b.agent.id, "a", "b", "x")
        result = await b.bash("seq 1 50000")
    assert "full output: (unavailable)" in text_of(result)
    assert list(outside.rglob("*")) == []


async def test_C45_one_session_cannot_fill_the_disk_with_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_shell._files.MAX_SESSION_BYTES", 500_000)
    async with shell_bench(tmp_path) as b:
        places = ["(unavailable)" in text_of(await b.bash("seq 1 50000")) for _ in range(4)]
        assert places == [False, False, True, True]
        store = cast("SpillStore", b.tools.ctx.spill_store)
        with pytest.raises(SpillError) as caught:
            await store.save_text(b.agent.id, "a", "b", "x")
        assert "saved for this session already" in caught.value.message
        await store.save_text(SessionId("another"), "a", "b", "x")


async def test_C45_a_full_disk_costs_the_file_and_not_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) > 10_000:
            raise OSError(28, "No space left on device")
        return write(descriptor, data)

    async with shell_bench(tmp_path) as b:
        monkeypatch.setattr(os, "write", full)
        result = await b.bash("seq 1 50000; exit 4")
    assert text_of(result).endswith("full output: (unavailable)]\n[exit code: 4]")
    assert [path for path in (tmp_path / "spill").rglob("*") if path.is_file()] == []


# ---- arguments ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"timeoutMs": -1}, "timeoutMs must be positive, not -1"),
        ({"timeoutMs": 0}, "timeoutMs must be positive, not 0"),
        ({"workdir": "/etc/passwd"}, "workdir /etc/passwd is no directory"),
        ({"workdir": "a\0b"}, "workdir 'a\\x00b' is no directory"),
        ({"workdir": "x" * 5000}, "no directory"),
        ({"sandbox_permissions": "danger-full-access"}, "no sandbox here to be widened"),
    ],
)
async def test_C110_arguments_that_cannot_be(
    tmp_path: Path, arguments: dict[str, object], told: str
) -> None:
    async with shell_bench(tmp_path) as b:
        result = await b.bash("touch ran", **arguments)
    assert told in text_of(result)
    assert not (tmp_path / "ran").exists()


async def test_C48_the_longest_limit_that_can_be_asked_for(tmp_path: Path) -> None:
    async with shell_bench(tmp_path) as b:
        assert text_of(await b.bash("echo x", timeoutMs=1e300)) == "x"


async def test_C54_other_agents_jobs_are_out_of_reach(tmp_path: Path) -> None:
    async with shell_bench(tmp_path) as b:
        await b.bash("sleep 60", run_in_background=True)
        other = b.tools.agent(cwd=str(tmp_path))
        for name in ("job_output", "job_kill"):
            result = await b.tools.run_as(other, name, job_id="bash-1")
            assert code_of(result) == "JOB_NOT_FOUND"
        assert text_of(await b.tools.run_as(other, "job_list")) == "No background jobs"


async def test_the_folder_for_outputs_is_private_where_everybody_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / f"dsh-spill-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    async with shell_bench(tmp_path, spill_root=None) as b:
        result = await b.bash("seq 1 50000")
    assert "full output: (unavailable)" in text_of(result)
    assert list((tmp_path / "elsewhere").iterdir()) == []


async def test_C46_killing_the_guard_costs_the_guard_only() -> None:
    async with open_runtime() as runtime:
        shell = runtime._guard._shell
        assert shell is not None
        os.kill(shell.pid, signal.SIGKILL)
        with anyio.fail_after(5):
            await until(partial(lambda pid: not is_alive(pid), shell.pid))
            for _ in range(3):
                assert (await run_bash(runtime, "echo x")).stdout == b"x\n"
