"""Run `deptry src` inside each package folder: imports are declared, declarations are used."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from workspace import Package, find_packages

PARALLEL = 2


def check(package: Package) -> str | None:
    """What deptry reports for one package, or `None` when it is content."""
    done = subprocess.run(
        [sys.executable, "-m", "deptry", "src", "--no-ansi"],
        cwd=package.folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return None if done.returncode == 0 else f"{package.dist}\n{done.stdout}{done.stderr}"


def main() -> int:
    """Check all packages; print the failures only."""
    packages = find_packages()
    with ThreadPoolExecutor(PARALLEL) as pool:
        failures = [report for report in pool.map(check, packages) if report is not None]
    print(*failures, sep="\n", end="")
    print(f"deptry: {len(packages)} packages, {len(failures)} with problems")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
