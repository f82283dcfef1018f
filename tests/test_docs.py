"""The pages of the docs lead somewhere and leave no package out."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("changelog.d/*.md")])
PACKAGES = sorted(path.parent.name for path in ROOT.glob("packages/*/*/pyproject.toml"))
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(?:#[^)\s]*)?\)")


@pytest.mark.parametrize(
    "page", [pytest.param(path, id=path.relative_to(ROOT).as_posix()) for path in PAGES]
)
def test_relative_links_lead_to_a_file(page: Path) -> None:
    links = LINK.findall(page.read_text(encoding="utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("dist", PACKAGES)
def test_the_index_and_the_layers_name_every_package(dist: str) -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    architecture = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert f"(subsystems/{dist}.md)" in index
    assert f"`{dist}`" in architecture


def test_no_subsystem_page_outlives_its_package() -> None:
    pages = sorted(path.stem for path in (ROOT / "docs" / "subsystems").glob("*.md"))
    assert pages == PACKAGES
