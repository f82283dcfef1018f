"""The commands of `dsh`.

What a command needs is imported inside it: `dsh --help` and a usage error stay instant.
"""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from dsh_brand import HarnessError
from dsh_cli.errors import CliError, ExitCode
from dsh_cli.providers import RETRIES

if TYPE_CHECKING:  # the real import happens with the command: it loads the whole stack
    from dsh_cli.output import Output

_CONTEXT: Final = {"help_option_names": ["-h", "--help"]}


@click.group(context_settings=_CONTEXT)
@click.version_option(package_name="dsh-cli", prog_name="dsh")
def cli() -> None:
    """DeepSeek Harness: an agent harness in which everything is a plugin."""


@cli.command()
@click.argument("prompt", required=False)
@click.option("-C", "--folder", type=click.Path(path_type=Path), help="Work here; default: here.")
@click.option("--provider", help="Route of the model: deepseek, openai, local, or a plugin's.")
@click.option("--model", help="Model id on that route.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value="@latest",
    metavar="[ID]",
    help="Continue a session; without ID the latest one of the folder.",
)
@click.option("--tools/--no-tools", default=None, help="File tools; on, except for small models.")
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=RETRIES,
    show_default=True,
    help="How often a request is repeated that failed in passing.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line on stdout.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Plugin rows (dsh.toml); default: the user's own, if there is one.",
)
def run(
    prompt: str | None,
    folder: Path | None,
    provider: str | None,
    model: str | None,
    resume: str | None,
    tools: bool | None,
    retries: int,
    as_json: bool,
    config: Path | None,
) -> None:
    """Run PROMPT in a folder ("-" reads it from standard input)."""
    if prompt is None:
        raise click.UsageError(
            'PROMPT is missing. Say what to do, as in: dsh run "Explain this folder". '
            "--resume takes the word behind it as an ID, so put it behind the prompt."
        )
    from dsh_cli import paths
    from dsh_cli.output import JsonOutput, TextOutput
    from dsh_cli.prompt import read_prompt
    from dsh_cli.run import RunOptions
    from dsh_cli.run import run as run_prompt

    output = JsonOutput() if as_json else TextOutput()

    async def command() -> ExitCode:
        own = paths.config_file()
        options = RunOptions(
            prompt=read_prompt(prompt),
            folder=_folder(folder),
            provider=provider,
            model=model,
            resume=resume,
            retries=retries,
            tools=tools,
            config_file=config or (own if own.exists() else None),
        )
        return await run_prompt(options, output)

    _finish(command, output)


@cli.command()
@click.option("--crash", is_flag=True, help="Die inside a tool call; run again to resume.")
def demo(crash: bool) -> None:
    """Play a scripted model through the real adapter, tools, loop and log."""
    from dsh_cli.demo import crash_demo
    from dsh_cli.demo import demo as play_demo
    from dsh_cli.output import TextOutput

    output = TextOutput()
    _finish((lambda: crash_demo(output)) if crash else (lambda: play_demo(output)), output)


@cli.command()
@click.option("-C", "--folder", type=click.Path(path_type=Path), help="Only sessions of a folder.")
def sessions(folder: Path | None) -> None:
    """List the stored sessions, newest first."""
    from dsh_cli.listing import list_sessions
    from dsh_cli.output import TextOutput

    _finish(lambda: list_sessions(_folder(folder) if folder else None), TextOutput())


@cli.command()
def plugins() -> None:
    """List the installed plugins with version, services and events."""
    from dsh_cli.listing import print_plugins

    print_plugins()


def main() -> None:
    """Entry point of the command `dsh`."""
    cli.main(prog_name="dsh")


def _folder(folder: Path | None) -> Path:
    path = (folder or Path.cwd()).resolve()
    if not path.is_dir():
        raise CliError(f"{str(path)!r} is no folder: name an existing one with -C", "NO_FOLDER")
    return path


def _finish(command: Callable[[], Awaitable[ExitCode]], output: "Output") -> None:
    """Run an async command, turn its errors into one sentence and exit."""
    import anyio

    _log_to_stderr()
    try:
        code = anyio.run(command)
    except* HarnessError as group:
        # What a plugin says while it starts; a failed turn is an outcome and raises nothing.
        error = _first(group)
        output.failure(error.message, error.code)
        code = error.exit_code if isinstance(error, CliError) else ExitCode.USAGE
    except* KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    sys.exit(code)


def _first(group: BaseExceptionGroup[HarnessError]) -> HarnessError:
    leaf = group.exceptions[0]
    return _first(leaf) if isinstance(leaf, BaseExceptionGroup) else leaf


def _log_to_stderr() -> None:
    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
