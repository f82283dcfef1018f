"""The packages of this workspace, as the scripts see them."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Package:
    """One distribution of the workspace."""

    dist: str
    version: str
    description: str
    group: str
    folder: Path
    extras: tuple[str, ...]

    @property
    def import_name(self) -> str:
        """Name under which the package is imported."""
        return self.dist.replace("-", "_")

    @property
    def source(self) -> Path:
        """Folder that holds the modules of the package."""
        return self.folder / "src" / self.import_name


def read_package(pyproject: Path) -> Package:
    """Read one package from its `pyproject.toml`."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    return Package(
        dist=project["name"],
        version=project["version"],
        description=project["description"],
        group=pyproject.parent.parent.name,
        folder=pyproject.parent,
        extras=tuple(sorted(project.get("optional-dependencies", {}))),
    )


def find_packages(root: Path = ROOT) -> list[Package]:
    """All packages under `root`, sorted by distribution name."""
    found = (read_package(path) for path in root.glob("packages/*/*/pyproject.toml"))
    return sorted(found, key=lambda package: package.dist)


def set_versions(text: str, version: str) -> str:
    """The `pyproject.toml` text with its version and its sibling pins set to `version`."""
    text = re.sub(r'(?m)^version = "[^"]*"', f'version = "{version}"', text, count=1)
    return re.sub(r'("dsh-[a-z0-9-]+(?:\[[^\]]+\])?==)[^";\s]+', rf"\g<1>{version}", text)
