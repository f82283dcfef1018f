"""Build every wheel, install each one alone into an empty environment and import all its modules.

A module that needs an extra is named after that extra and is imported after `dist[extra]`. At the
end one environment takes all packages, and `mypy --strict` judges a small program against what was
installed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from workspace import ROOT, Package, find_packages

PARALLEL = 2

CONSUMER = """
import anyio
import dsh_llm_openai
from dsh_llm import create_user_message
from dsh_spine import SpineContext, spine


async def main() -> None:
    async with SpineContext() as ctx:
        ctx.plugin(spine)
        ctx.plugin(dsh_llm_openai, {"providers": {"deepseek": {"api_key_env": "DEEPSEEK_API_KEY"}}})
        await ctx.settled()
        handle = await ctx.agents.create(provider="deepseek", model="deepseek-chat")
        handle.agent.followup(create_user_message("Summarize this workspace."))
        await handle.agent.when_idle()
        await handle.dispose()


anyio.run(main)
"""

IMPORT_ALL = """
import importlib, sys, traceback
failed = False
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception as error:
        failed = True
        print(f"cannot import {name}:", *traceback.format_exception(error, limit=-1), sep="\\n")
sys.exit(failed)
"""


class CheckError(Exception):
    """A command of the check failed; the text is what it printed."""


def run(*command: str | Path, cwd: Path) -> None:
    """Run a command away from the workspace, whose settings must not help the installation."""
    environ = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CheckError(f"$ {' '.join(map(str, command))[:300]}\n{done.stdout}{done.stderr}")


def uv() -> str:
    """The uv that started us, else the one on the path."""
    found = os.environ.get("UV") or shutil.which("uv")
    if not found:
        raise SystemExit("uv is not on the path: install it with `pip install uv`")
    return found


def modules_of(wheel: Path, package: Package) -> dict[str | None, list[str]]:
    """Modules of a wheel, grouped by the extra they are named after (`None` for no extra)."""
    groups: dict[str | None, list[str]] = {None: [], **{extra: [] for extra in package.extras}}
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
    for required in (f"{package.import_name}/py.typed", "licenses/LICENSE", "METADATA"):
        if not any(name.endswith(required) for name in files):
            raise CheckError(f"{wheel.name} lacks {required}")
    for name in sorted(files):
        if not name.endswith(".py") or name.endswith("/__main__.py"):
            continue
        parts = name.removesuffix(".py").removesuffix("/__init__").split("/")
        extra = next((part for part in parts[1:] if part.replace("_", "-") in package.extras), None)
        groups[extra and extra.replace("_", "-")].append(".".join(parts))
    return groups


def environment(folder: Path, wheels: Path, *requirements: str) -> Path:
    """Make an empty environment, install into it, and return its interpreter."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        run(uv(), "venv", "--quiet", "--python", sys.executable, folder, cwd=wheels)
    install(python, wheels, *requirements)
    return python


def install(python: Path, wheels: Path, *requirements: str) -> None:
    """Install packages: ours from the folder of wheels, all others from the index."""
    options = ("--quiet", "--python", python, "--find-links", wheels)
    run(uv(), "pip", "install", *options, *requirements, cwd=wheels)


def check_package(package: Package, work: Path) -> str | None:
    """Install one package alone and import every module of it; the failure, or `None`."""
    started = time.monotonic()
    wheels = work / "wheels"
    pin = f"=={package.version}"
    try:
        (wheel,) = wheels.glob(f"{package.import_name}-{package.version}-*.whl")
        groups = modules_of(wheel, package)
        folder = work / "envs" / package.dist
        python = environment(folder, wheels, package.dist + pin)
        run(python, "-I", work / "import_all.py", *groups.pop(None), cwd=work)
        for extra, modules in groups.items():
            install(python, wheels, f"{package.dist}[{extra}]{pin}")
            run(python, "-I", work / "import_all.py", package.import_name, *modules, cwd=work)
        shutil.rmtree(folder)
    except (CheckError, ValueError) as error:
        print(f"FAILED {package.dist}")
        return f"{package.dist}: {error}"
    print(f"ok {package.dist} {time.monotonic() - started:.1f} s")
    return None


def check_consumer(packages: list[Package], work: Path) -> str | None:
    """Type-check a program against all packages as a user has them installed."""
    program = work / "consumer.py"
    program.write_text(CONSUMER, encoding="utf-8")
    pins = [f"{package.dist}=={package.version}" for package in packages]
    flags = ("--strict", "--config-file=", "--cache-dir", work / "mypy")
    try:
        python = environment(work / "envs" / "all", work / "wheels", *pins)
        command = (sys.executable, "-m", "mypy", *flags, "--python-executable", python, program)
        run(*command, cwd=work)
    except CheckError as error:
        print("FAILED consumer of all packages")
        return f"consumer: {error}"
    print("ok consumer of all packages under mypy --strict")
    return None


def check(work: Path, only: list[str]) -> list[str]:
    """Run the whole check in `work` and return the failures."""
    packages = find_packages()
    unknown = set(only) - {package.dist for package in packages}
    if unknown:
        raise SystemExit(f"no such package: {', '.join(sorted(unknown))}")
    wheels = work / "wheels"
    (work / "import_all.py").write_text(IMPORT_ALL, encoding="utf-8")
    run(uv(), "build", "--quiet", "--all-packages", "--wheel", "--out-dir", wheels, cwd=ROOT)
    chosen = [package for package in packages if not only or package.dist in only]
    with ThreadPoolExecutor(PARALLEL) as pool:
        results = list(pool.map(lambda package: check_package(package, work), chosen))
    if not only:
        results.append(check_consumer(packages, work))
    return [failure for failure in results if failure is not None]


def main() -> int:
    """Parse the arguments, run the check, print a summary line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], metavar="DIST")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dsh-wheels-") as work:
        try:
            failures = check(Path(work).resolve(), arguments.only)
        except CheckError as error:
            failures = [f"build: {error}"]
    print(*failures, sep="\n")
    print(f"wheels: {len(failures)} failures" if failures else "wheels: all good")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
