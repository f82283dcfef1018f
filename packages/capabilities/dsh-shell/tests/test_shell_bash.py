"""The tool `bash` through the whole pipeline."""

import hashlib
import os
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

import dsh_shell
from dsh_llm import AbortController
from dsh_session import SessionId
from dsh_shell import ChildProcess, texts
from dsh_shell.testing import group_is_alive, shell_bench, until, until_output
from dsh_system_prompt import render_prompt
from dsh_tools import ToolExecutionResult, ToolSuccess
from dsh_tools.presentation import TerminalCall, TerminalResult
from dsh_tools.testing import code_of, text_of, tool_bench


def value_of(result: ToolExecutionResult) -> dict[str, Any]:
    assert isinstance(result, ToolSuccess), text_of(result)
    return cast("dict[str, Any]", result.value)


# ---- what it runs ---------------------------------------------------------------------------


async def test_C47_a_fresh_plain_shell_without_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".bash_profile").write_text("echo profile", encoding="utf-8")
    (tmp_path / ".bashrc").write_text("echo rc", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BASH_ENV", str(tmp_path / ".bashrc"))
    async with shell_bench(tmp_path) as b:
        assert text_of(await b.bash("cat; export A=1; cd /; echo $-")) in ("hBc", "hB")
        assert text_of(await b.bash("echo [$A]; pwd; tty; [ -t 0 ] || echo none")) == (
            f"[]\n{tmp_path}\nnot a tty\nnone"
        )


async def test_C48_the_environment_of_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Persistence:
        def path_of(self, session_id: SessionId) -> Path:
            return tmp_path / f"{session_id}.jsonl"

    monkeypatch.setenv("PAGER", "less")
    monkeypatch.setenv("OPENAI_API_KEY", "leak-me-not")
    monkeypatch.setenv("DSH_SESSION_ID", "another")
    async with shell_bench(tmp_path, bash={"home": str(tmp_path)}) as b:
        b.tools.ctx.provide("session_persistence", Persistence())
        env = dict(line.partition("=")[::2] for line in text_of(await b.bash("env")).splitlines())
    facts = {name: value for name, value in env.items() if name.startswith("DSH_")}
    assert facts == {
        "DSH_SHELL": "1",
        "DSH_HOME": str(tmp_path),
        "DSH_SESSION_ID": b.agent.id,
        "DSH_SESSION_LOG": f"{tmp_path}/{b.agent.id}.jsonl",
    }
    assert {name: env[name] for name in ("NO_COLOR", "TERM", "PAGER", "GIT_PAGER")} == {
        "NO_COLOR": "1",
        "TERM": "dumb",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
    }
    assert "leak-me-not" not in str(env)


async def test_C49_workdir_starts_at_the_sessions_directory(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub")
    os.mkfifo(tmp_path / "pipe")
    async with shell_bench(tmp_path) as b:
        assert text_of(await b.bash("pwd -P", workdir="sub")) == str(tmp_path / "sub")
        assert text_of(await b.bash("pwd", workdir="link")) == str(tmp_path / "sub")
        assert text_of(await b.bash("pwd", workdir="/")) == "/"
        for wrong in ("none", "pipe"):
            assert f"{tmp_path}/{wrong} is no directory" in text_of(
                await b.bash("pwd", workdir=wrong)
            )
        # An argument nobody asked for goes nowhere.
        assert text_of(await b.bash("echo $0 $#", env={"A": "1"}, argv="x")) == "bash 0"


@pytest.mark.parametrize("command", ["a\0b", "x" * 200_000])
async def test_C110_commands_that_cannot_be_passed_on(tmp_path: Path, command: str) -> None:
    async with shell_bench(tmp_path) as b:
        result = await b.bash(command)
    assert code_of(result) in ("SPAWN_INVALID", "SPAWN_FAILED")
    assert len(text_of(result)) < 200
    assert "Traceback" not in text_of(result)


# ---- what comes back ------------------------------------------------------------------------


async def test_C50_C52_what_the_model_reads(tmp_path: Path) -> None:
    async with shell_bench(tmp_path) as b:
        assert text_of(await b.bash("echo out")) == "out"
        assert text_of(await b.bash("true")) == texts.NO_OUTPUT
        assert text_of(await b.bash("exit 7")) == "(no output)\n[exit code: 7]"
        both = await b.bash("echo out; echo err >&2; exit 3")
        assert text_of(both) == "out\n[stderr]\nerr\n[exit code: 3]"
        assert value_of(both) == {
            "kind": "foreground",
            "exitCode": 3,
            "signal": None,
            "timedOut": False,
            "aborted": False,
            "timeoutMs": 120_000,
            "stdout": {"text": "out\n", "truncated": False},
            "stderr": {"text": "err\n", "truncated": False},
            "heldOpen": False,
            "survivors": False,
        }
        killed = text_of(await b.bash("kill -9 $$"))
        assert killed == "(no output)\n[killed by signal: SIGKILL]"
        late = text_of(await b.bash("trap 'exit 0' TERM; sleep 60 & wait", timeoutMs=100))
        assert late == "(no output)\n[timed out after 100ms]"
        held = text_of(await b.bash("sleep 60 & echo started"))
        assert held == f"started\n{texts.HELD_OPEN}"


async def test_C44_C48_C50_only_the_end_is_shown_and_the_whole_is_in_a_file(tmp_path: Path) -> None:
    limits = {"max_output_bytes": 20, "max_spill_bytes": 100_000}
    async with shell_bench(tmp_path, bash=limits) as b:
        result = await b.bash("printf '\\xe2\\x82\\xac%.0s' {1..1000}; seq 1 5000 >&2; exit 2")
        value = value_of(result)
        assert value["stdout"]["text"] == "\ufffd\ufffd" + "\u20ac" * 6
        whole = await anyio.Path(value["stderr"]["spillPath"]).read_text("utf-8")
        assert whole.splitlines()[-1] == "5000"
        assert text_of(result).splitlines()[-3:] == [
            texts.TRUNCATED.format(place=value["stdout"]["spillPath"]),
            texts.TRUNCATED.format(place=value["stderr"]["spillPath"]),
            "[exit code: 2]",
        ]
        flood = await b.bash("head -c 1000000 /dev/zero")
        assert text_of(flood).endswith("[output truncated; full output: (unavailable)]")


async def test_C48_the_longest_limit(tmp_path: Path) -> None:
    async with shell_bench(tmp_path, bash={"default_timeout_ms": 50, "max_timeout_ms": 90}) as b:
        assert value_of(await b.bash("true"))["timeoutMs"] == 50
        long = await b.bash("sleep 60", timeoutMs=1e12)
        assert (value_of(long)["timeoutMs"], value_of(long)["timedOut"]) == (90, True)
        assert value_of(await b.bash("true", timeoutMs=0.5))["timeoutMs"] == 1
        for wrong in (0, -1):
            assert "timeoutMs must be positive" in text_of(await b.bash("true", timeoutMs=wrong))


@pytest.mark.parametrize(
    "command", ["echo up; sleep 60", "trap 'exit 0' TERM; echo up; sleep 60 & wait"]
)
async def test_C51_C123_an_aborted_call_fails_and_its_group_is_gone(
    tmp_path: Path, command: str
) -> None:
    async with shell_bench(tmp_path) as b:
        controller = AbortController()
        call = b.tools.call(
            "bash",
            {"command": command, "description": "d"},
            agent=b.agent,
            signal=controller.signal,
        )
        children: list[ChildProcess] = []

        async def abort() -> None:
            await until(lambda: bool(b.runtime.children))
            children.extend(b.runtime.children)
            await until_output(children[0])
            controller.abort()

        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(abort)
                result = await b.tools.tools.execute(call)
        assert code_of(result) == "ABORTED"
        assert not group_is_alive(children[0].pid)


async def test_T105_cards(tmp_path: Path) -> None:
    async with shell_bench(tmp_path) as b:
        bash = b.tools.tools.get("bash")
        assert bash is not None
        assert bash.present_call is not None
        assert bash.present_result is not None
        arguments = {"command": "ls", "description": "List", "workdir": "/"}
        assert bash.present_call(arguments) == TerminalCall("ls", description="List", cwd="/")
        assert bash.present_call({"command": 1}) is None
        result = await b.bash("echo a; exit 2")
        assert bash.present_result(arguments, result) == TerminalResult(output="a", exit_code=2)
        refused = await b.bash("true", timeoutMs=-1)
        assert bash.present_result(arguments, refused) is None


# ---- in the background ----------------------------------------------------------------------


async def test_C53_C55_a_background_command(tmp_path: Path) -> None:
    async with shell_bench(tmp_path) as b:
        script = "echo one; read < gate; echo two; echo err >&2; exit 3"
        os.mkfifo(tmp_path / "gate")
        started = await b.bash(script, run_in_background=True)
        assert text_of(started) == "started background job bash-1"
        assert value_of(started) == {"kind": "background", "jobId": "bash-1"}
        await until_output(b.runtime.children[0])
        assert (
            text_of(await b.run("job_output", job_id="bash-1", wait=False))
            == "one\n[status: running]"
        )
        assert text_of(await b.run("job_output", job_id="bash-1", timeout_ms=20)) == (
            f"{texts.NO_NEW_OUTPUT}\n[status: running]"
        )
        assert text_of(await b.run("job_list")) == "bash-1: test [running]"
        await anyio.Path(tmp_path / "gate").write_text("\n", encoding="utf-8")
        assert text_of(await b.run("job_output", job_id="bash-1")) == (
            "two\n[stderr]\nerr\n[status: failed (exit code 3)]"
        )
        assert text_of(await b.run("job_list")) == "bash-1: test [failed (exit code 3)]"


async def test_C53_the_end_of_the_call_is_not_the_end_of_the_job(tmp_path: Path) -> None:
    async with shell_bench(tmp_path) as b:
        controller = AbortController()
        arguments = {"command": "sleep 60", "description": "d", "run_in_background": True}
        call = b.tools.call("bash", arguments, agent=b.agent, signal=controller.signal)
        assert text_of(await b.tools.tools.execute(call)) == "started background job bash-1"
        controller.abort()
        assert "running" in text_of(await b.run("job_list"))
        child = b.runtime.children[0]
        assert text_of(await b.run("job_kill", job_id="bash-1")) == "Job bash-1 is stopping."
        assert text_of(await b.run("job_output", job_id="bash-1")) == (
            f"{texts.NO_NEW_OUTPUT}\n[status: killed (signal SIGTERM)]"
        )
        assert not group_is_alive(child.pid)


async def test_C53_switched_off_it_is_neither_offered_nor_accepted(tmp_path: Path) -> None:
    async with shell_bench(tmp_path, bash={"enable_run_in_background": False}) as b:
        schema = next(each for each in b.tools.tools.schemas() if each.name == "bash")
        assert "run_in_background" not in str(schema.parameters)
        for value in (True, False):
            assert text_of(await b.bash("true", run_in_background=value)) == (
                f"Error: {texts.BACKGROUND_DISABLED}"
            )


async def test_C53_without_jobs_or_agent_nothing_is_started(tmp_path: Path) -> None:
    touch = f"touch {tmp_path}/f"
    async with shell_bench(tmp_path, jobs=False) as b:
        assert "not available" in text_of(await b.bash(touch, run_in_background=True))
    async with shell_bench(tmp_path) as b:
        result = await b.tools.run("bash", command=touch, description="d", run_in_background=True)
        assert texts.BACKGROUND_NEEDS_AGENT in text_of(result)
    assert not (tmp_path / "f").exists()


# ---- the package ----------------------------------------------------------------------------


async def test_T38_names_parameters_and_required_are_the_references(tmp_path: Path) -> None:
    async with shell_bench(tmp_path) as b:
        shapes = {
            schema.name: {
                name: (node["type"], name in schema.parameters.get("required", []))  # type: ignore[index, call-overload, operator]  # plain JSON
                for name, node in schema.parameters["properties"].items()  # type: ignore[union-attr]  # plain JSON
            }
            for schema in b.tools.tools.schemas()
        }
        modes = {name: b.tools.tools.execution_mode(b.tools.call(name, {})) for name in shapes}
    assert shapes == {
        "bash": {
            "command": ("string", True),
            "description": ("string", True),
            "timeoutMs": ("number", False),
            "workdir": ("string", False),
            "run_in_background": ("boolean", False),
        },
        "job_output": {
            "job_id": ("string", True),
            "wait": ("boolean", False),
            "timeout_ms": ("number", False),
        },
        "job_list": {},
        "job_kill": {"job_id": ("string", True), "reason": ("string", False)},
    }
    assert set(modes.values()) == {"exclusive"}


async def test_C107_T109_sections_live_as_long_as_the_plugin(tmp_path: Path) -> None:
    async with tool_bench() as tools:
        async with tools.ctx.plugin(dsh_shell, {"spill_root": tmp_path}):
            await tools.ctx.settled()
            assembled = await tools.ctx.system_prompt.assemble(None)
            names = [section.name for section in assembled.sections]
            assert names[2:] == ["tool:bash", "tool:jobs"]
            assert texts.BASH_SECTION in render_prompt(assembled)
        assert tools.tools.names() == []
        assert len((await tools.ctx.system_prompt.assemble(None)).sections) == 2
        for key in ("subprocess", "jobs", "spill_store"):
            assert tools.ctx.get(key) is None


@pytest.mark.parametrize(
    "config",
    [
        {"bash": {"grace_ms": 0}},
        {"bash": {"grace_ms": True}},
        {"bash": {"max_output_bytes": 1.5}},
        {"bash": {"max_spill_bytes": "1"}},
        {"bash": {"default_timeout_ms": 2, "max_timeout_ms": 1}},
        {"sandbox": {"mode": "open"}},
        {"unknown": 1},
    ],
)
def test_C109_wrong_configuration_is_refused(config: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        dsh_shell.Config.model_validate(config)


def test_C119_texts_for_the_model_change_on_purpose_only() -> None:
    everything = "\n".join(
        f"{name}={text}" for name, text in sorted(vars(texts).items()) if name.isupper()
    )
    assert hashlib.sha256(everything.encode()).hexdigest() == TEXTS_DIGEST


TEXTS_DIGEST = "3cf17e2cb109bae25ba2566db5be8212cee7668ff10982e339472fc714edd099"
