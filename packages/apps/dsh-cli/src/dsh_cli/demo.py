"""`dsh demo`: a scripted model through the real adapter, tools, loop and log.

Nothing is faked but the model's decisions: a server on loopback plays them over HTTP.
"""

import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio
import click

from dsh_agent import Agent
from dsh_cli import paths
from dsh_cli.errors import ExitCode
from dsh_cli.output import Output
from dsh_cli.providers import ProviderChoice
from dsh_cli.sessions import LATEST, create_agent, resume_agent, show_session
from dsh_cli.stack import CliContext, equip, mount_provider, mounted_stack
from dsh_cli.turn import run_turn
from dsh_llm_scripted import Call, MockServer, Reply, slowly, text_reply, tool_call_reply
from dsh_session import SessionEvent, SessionEventAppended, ToolResultEvent
from dsh_tools import tool

NOTES: Final = "# Trip\n\n- [ ] pack teh bag\n- [ ] call Ada\n"
PROMPT: Final = "There is a typo in notes.md. Mend it."
STEER: Final = "And tick off the call with Ada, please."
PUBLISH_PROMPT: Final = "Publish notes.md."
GO_ON_PROMPT: Final = "The process died. Go on."

_MODEL: Final = "scripted-1"
_PAUSE_S: Final = 0.03
"""Between two pieces of an answer, so that the stream can be watched."""


async def demo(output: Output) -> ExitCode:
    """Play the conversation: read, an invalid call, recovery, a steering message, the end."""
    with TemporaryDirectory(prefix="dsh-demo-") as name:
        root = Path(name)
        folder = _workspace(root)
        async with _stage(root / "sessions", _editing_script()) as (ctx, choice):
            agent = (await create_agent(ctx, folder, choice)).agent
            await equip(ctx, agent, choice, tools=True)
            show_session(ctx, agent, output, resumed=False)
            agent.ctx.on(SessionEventAppended, _steer_after_first_failure(agent))
            click.secho(f"you: {PROMPT}", bold=True)
            code = await run_turn(agent, PROMPT, output)
            _show_file(folder / "notes.md")
            _show_log(agent.session.events)
    return code


async def crash_demo(output: Output) -> ExitCode:
    """First run: die inside a tool call. Next run: resume the same session and finish."""
    root = paths.ensure_writable(paths.data_dir() / "demo-crash")
    sessions = root / "sessions"
    if sessions.exists():
        return await _resume_after_crash(root, output)
    folder = _workspace(root)
    async with _stage(sessions, [_publish_call()]) as (ctx, choice):
        agent = (await create_agent(ctx, folder, choice)).agent
        await equip(ctx, agent, choice, tools=True)
        agent.ctx.tools.register(_publish_and_die(folder))
        show_session(ctx, agent, output, resumed=False)
        click.secho(f"you: {PUBLISH_PROMPT}", bold=True)
        return await run_turn(agent, PUBLISH_PROMPT, output)


async def _resume_after_crash(root: Path, output: Output) -> ExitCode:
    async with _stage(root / "sessions", _verifying_script()) as (ctx, choice):
        agent = (await resume_agent(ctx, root / "work", LATEST)).agent
        await equip(ctx, agent, choice, tools=True)
        show_session(ctx, agent, output, resumed=True)
        click.secho(f"you: {GO_ON_PROMPT}", bold=True)
        code = await run_turn(agent, GO_ON_PROMPT, output)
        _show_log(agent.session.events)
    shutil.rmtree(root)
    return code


@asynccontextmanager
async def _stage(
    sessions: Path, script: Sequence[Reply]
) -> AsyncIterator[tuple[CliContext, ProviderChoice]]:
    steps = [slowly(reply, _PAUSE_S) for reply in script]
    async with MockServer(steps, strict=True) as server, mounted_stack(sessions) as ctx:
        choice = ProviderChoice(
            route="demo",
            model=_MODEL,
            plugin="dsh_llm_openai",
            config={"providers": {"demo": {"preset": "generic", "base_url": server.base_url}}},
        )
        await mount_provider(ctx, choice)
        yield ctx, choice


def _workspace(root: Path) -> Path:
    folder = root / "work"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "notes.md").write_text(NOTES, encoding="utf-8")
    return folder.resolve()


def _editing_script() -> list[Reply]:
    return [
        tool_call_reply(Call("read", {"file_path": "notes.md"}), text="I look at the file first."),
        tool_call_reply(Call("edit", {"file_path": "notes.md", "old_string": "teh"})),
        tool_call_reply(
            Call("edit", _edit("teh bag", "the bag")), text="The new text was missing. Again."
        ),
        tool_call_reply(
            Call("edit", _edit("[ ] call Ada", "[x] call Ada")), text="Now the call with Ada."
        ),
        text_reply("Done: the typo is mended and the call with Ada is ticked off."),
    ]


def _edit(old: str, new: str) -> dict[str, object]:
    return {"file_path": "notes.md", "old_string": old, "new_string": new}


def _publish_call() -> Reply:
    return tool_call_reply(Call("publish", {"file_path": "notes.md"}), text="I publish it.")


def _verifying_script() -> list[Reply]:
    return [
        tool_call_reply(
            Call("read", {"file_path": "published.md"}),
            text="The outcome of the call is not recorded, so I look before I repeat anything.",
        ),
        text_reply("The file had been published before the process died. Nothing is left to do."),
    ]


def _steer_after_first_failure(agent: Agent) -> Callable[[SessionEventAppended], None]:
    sent = False

    async def steer() -> None:
        click.secho(f"you, meanwhile: {STEER}", bold=True)
        agent.steer(STEER)

    def listen(appended: SessionEventAppended) -> None:
        nonlocal sent
        data = appended.event.data
        if not sent and isinstance(data, ToolResultEvent) and data.message.is_error:
            sent = True
            # An append cannot nest in an append, so the message follows from a task of its own.
            agent.ctx.spawn(steer, name="demo:steer")

    return listen


def _publish_and_die(folder: Path) -> object:
    @tool
    async def publish(file_path: str) -> str:
        """Publish a file.

        Args:
            file_path: The file, relative to the working folder.
        """
        text = await anyio.Path(folder / file_path).read_text(encoding="utf-8")
        await anyio.Path(folder / "published.md").write_text(text, encoding="utf-8")
        click.secho("… and here the process dies (SIGKILL). Run the same command again.", bold=True)
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        return "unreachable"

    return publish


def _show_file(path: Path) -> None:
    click.secho(f"\n{path.name} is now:", bold=True)
    click.echo(path.read_text(encoding="utf-8"))


def _show_log(events: Sequence[SessionEvent]) -> None:
    click.secho("the log:", bold=True)
    for event in events:
        click.echo(f"{event.seq:4}  {event.type}")
