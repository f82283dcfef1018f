"""Generated regions between markers; everything outside them belongs to whoever writes the page."""

import re
from collections.abc import Mapping
from pathlib import Path

from catalog import render
from catalog.model import Catalog, PackageEntry

NOTHING = "None."


def marker(edge: str, name: str) -> str:
    """The comment that begins or ends a region; a README's region has no name."""
    return f"<!-- catalog:{edge}{name and ' ' + name} -->"


def replace_region(text: str, name: str, content: str) -> str | None:
    """The text with the region's content replaced, or `None` when it has no such region."""
    begin, end = marker("begin", name), marker("end", name)
    pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
    if not pattern.search(text):
        return None
    region = f"{begin}\n\n{content}\n\n{end}"
    return pattern.sub(lambda _: region, text, count=1)


class Pages:
    """Computes what every generated file should hold; writing is the caller's decision."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.wanted: dict[Path, str] = {}
        self.problems: list[str] = []

    def fill(self, path: Path, regions: Mapping[str, str]) -> None:
        """Fill the regions of a page; content without a region to hold it is a problem."""
        shown = path.relative_to(self.root).as_posix()
        if not path.is_file():
            if any(regions.values()):
                self.problems.append(f"{shown}: the page is missing, write it with its markers")
            return
        text = path.read_text(encoding="utf-8")
        for name, content in regions.items():
            filled = replace_region(text, name, content or NOTHING)
            if filled is not None:
                text = filled
            elif content:
                self.problems.append(
                    f"{shown}: no region for its {name}; add {marker('begin', name)}"
                    f" and {marker('end', name)}"
                )
        self.wanted[path] = text

    def fill_readme(self, path: Path, package: PackageEntry) -> None:
        """Fill the region of a README, appended when the package offers something."""
        text = path.read_text(encoding="utf-8")
        content = render.readme_region(package)
        filled = replace_region(text, "", content)
        if filled is None and not package.is_empty:
            region = f"{marker('begin', '')}\n\n{content}\n\n{marker('end', '')}\n"
            filled = f"{text.rstrip()}\n\n## Services and events\n\n{region}"
        if filled is not None:
            self.wanted[path] = filled

    def stale(self) -> list[Path]:
        """Files whose content is not what the sources say."""
        return [
            path
            for path, text in self.wanted.items()
            if not path.is_file() or path.read_text(encoding="utf-8") != text
        ]


def plan(root: Path, catalog: Catalog, folders: Mapping[str, Path]) -> Pages:
    """All generated files for a catalog; `folders` are the package folders by distribution."""
    pages = Pages(root)
    docs = root / "docs"
    for package in catalog.packages:
        page = docs / "subsystems" / f"{package.dist}.md"
        pages.fill(page, render.page_regions(package, "../../"))
        pages.fill_readme(folders[package.dist] / "README.md", package)
    pages.fill(docs / "catalog.md", render.index_regions(catalog))
    pages.wanted[docs / "catalog.json"] = render.as_json(catalog)
    return pages
