"""The command: read, then write or check."""

import argparse
from pathlib import Path

from workspace import ROOT, find_packages

from catalog.model import Catalog
from catalog.pages import Pages, plan
from catalog.reader import PackageReader, load
from catalog.uses import find_uses


def build(root: Path) -> tuple[Catalog, Pages]:
    """Read all packages under `root` and compute all generated files."""
    packages = find_packages(root)
    loader = load(packages)
    readers = [PackageReader(package, root, loader) for package in packages]
    entries = tuple(reader.read() for reader in readers)
    uses = find_uses(packages, {entry.import_name: list(entry.events) for entry in entries})
    problems = tuple(problem for reader in readers for problem in reader.problems)
    catalog = Catalog(entries, tuple(uses), problems)
    folders = {package.dist: package.folder for package in packages}
    return catalog, plan(root, catalog, folders)


def main() -> int:
    """Write the generated files, or with `--check` say which ones are stale."""
    parser = argparse.ArgumentParser(description="Write the generated catalog.")
    parser.add_argument("--check", action="store_true", help="change nothing; fail when stale")
    parser.add_argument("--root", type=Path, default=ROOT, help="another workspace, for tests")
    arguments = parser.parse_args()
    root = arguments.root.resolve()
    catalog, pages = build(root)
    stale = pages.stale()
    problems = [*catalog.problems, *pages.problems]
    for path in stale:
        print(f"{'stale' if arguments.check else 'written'}: {path.relative_to(root).as_posix()}")
        if not arguments.check:
            path.write_text(pages.wanted[path], encoding="utf-8")
    for problem in problems:
        print(f"problem: {problem}")
    services = sum(len(package.services) for package in catalog.packages)
    events = sum(len(package.events) for package in catalog.packages)
    logged = sum(len(package.session_events) for package in catalog.packages)
    print(f"catalog: {services} services, {events} events, {logged} session events")
    if arguments.check and stale:
        print("run `poe docs` and commit what it writes")
    return 1 if problems or (arguments.check and stale) else 0
