"""Prepare a release: `scripts/release.py X.Y.Z` sets every version and every pin between siblings.

The change log is joined from `changelog.d/` by towncrier and the lock file is renewed. Nothing is
committed, tagged or uploaded here: the tag `vX.Y.Z` starts the release workflow.
"""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

from workspace import ROOT, find_packages, set_versions

VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")


def version(text: str) -> str:
    """Accept `X.Y.Z`, with `aN`, `bN` or `rcN` behind it for a pre-release."""
    if not VERSION.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not X.Y.Z or X.Y.Zrc1")
    return text


def set_all(root: Path, new: str) -> list[Path]:
    """Write the version into every package and return the files that changed."""
    changed = []
    for package in find_packages(root):
        path = package.folder / "pyproject.toml"
        before = path.read_text(encoding="utf-8")
        after = set_versions(before, new)
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed.append(path)
    return changed


def finish(root: Path, new: str) -> None:
    """Join the news fragments and renew the lock file."""
    uv = shutil.which("uv")
    if uv is None:
        raise SystemExit("uv is not on the path: install it with `pip install uv`")
    config = ("--config", "changelog.d/towncrier.toml", "--dir", ".")
    towncrier = ("tool", "run", "towncrier>=24.8", "build", "--yes", *config, "--version", new)
    subprocess.run([uv, *towncrier], cwd=root, check=True)
    subprocess.run([uv, "lock"], cwd=root, check=True)


def main() -> int:
    """Set the versions, then, unless only they are wanted, join the news and lock."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", type=version)
    parser.add_argument("--root", type=Path, default=ROOT, help="another workspace, for tests")
    parser.add_argument("--versions-only", action="store_true", help="no change log, no lock")
    arguments = parser.parse_args()
    changed = set_all(arguments.root, arguments.version)
    if not arguments.versions_only:
        finish(arguments.root, arguments.version)
    print(f"{len(changed)} packages are now {arguments.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
