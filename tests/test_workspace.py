"""What the root declares about the packages equals what lies in the folders."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
PYPROJECTS = sorted(ROOT.glob("packages/*/*/pyproject.toml"))
GROUPS = {"ground", "spine", "providers", "stores", "capabilities", "apps"}


def read(path: Path) -> dict[str, Any]:  # TOML has no narrower type
    return tomllib.loads(path.read_text(encoding="utf-8"))


def names() -> set[str]:
    return {read(path)["project"]["name"] for path in PYPROJECTS}


def imports() -> set[str]:
    return {name.replace("-", "_") for name in names()}


def bare_name(requirement: str) -> str:
    return re.split(r"[\[ <>=!~;]", requirement, maxsplit=1)[0]


each_package = pytest.mark.parametrize(
    "pyproject", [pytest.param(path, id=path.parent.name) for path in PYPROJECTS]
)


def test_every_package_is_a_workspace_source() -> None:
    sources = read(ROOT / "pyproject.toml")["tool"]["uv"]["sources"]
    assert sources == {name: {"workspace": True} for name in names()}


def test_import_linter_knows_every_package() -> None:
    assert set(read(ROOT / "pyproject.toml")["tool"]["importlinter"]["root_packages"]) == imports()


def test_every_package_has_its_place_in_the_layers() -> None:
    contracts = read(ROOT / "pyproject.toml")["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    placed = [name.strip() for row in layers for name in row.split("|")]
    assert sorted(placed) == sorted(imports())


def test_every_source_folder_is_on_the_path_of_mypy() -> None:
    searched = set(read(ROOT / "pyproject.toml")["tool"]["mypy"]["mypy_path"])
    folders = {(path.parent / "src").relative_to(ROOT).as_posix() for path in PYPROJECTS}
    assert folders <= searched


def test_the_family_has_one_version() -> None:
    assert len({read(path)["project"]["version"] for path in PYPROJECTS}) == 1


@each_package
def test_a_package_lies_where_its_name_says(pyproject: Path) -> None:
    name = read(pyproject)["project"]["name"]
    assert pyproject.parent.name == name
    assert pyproject.parent.parent.name in GROUPS
    sources = [path.name for path in (pyproject.parent / "src").iterdir() if path.is_dir()]
    assert [path for path in sources if not path.endswith(".egg-info")] == [name.replace("-", "_")]


@each_package
def test_a_package_ships_readme_license_and_types(pyproject: Path) -> None:
    project = read(pyproject)["project"]
    folder = pyproject.parent
    assert project["requires-python"] == ">=3.11"
    assert project["license"] == "MIT"
    assert (folder / project["readme"]).read_text(encoding="utf-8").startswith(f"# {folder.name}\n")
    assert project["license-files"] == ["LICENSE"]
    assert (folder / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert (folder / "src" / folder.name.replace("-", "_") / "py.typed").is_file()


@each_package
def test_a_package_pins_its_siblings_exactly(pyproject: Path) -> None:
    project = read(pyproject)["project"]
    extras = project.get("optional-dependencies", {}).values()
    for requirement in [*project["dependencies"], *(line for lines in extras for line in lines)]:
        if bare_name(requirement) in names():
            assert requirement.endswith(f"=={project['version']}"), requirement
        else:
            assert ">=" in requirement, f"{requirement} has no floor"


@each_package
def test_the_tools_bring_what_an_extra_needs(pyproject: Path) -> None:
    dev = read(ROOT / "pyproject.toml")["dependency-groups"]["dev"]
    brought = names() | {bare_name(requirement) for requirement in dev}
    for extra, lines in read(pyproject)["project"].get("optional-dependencies", {}).items():
        whole = f"{pyproject.parent.name}[{extra}]"
        assert whole in dev or {bare_name(line) for line in lines} <= brought, f"dev lacks {whole}"


@each_package
def test_a_package_has_a_subsystem_page(pyproject: Path) -> None:
    page = ROOT / "docs" / "subsystems" / f"{pyproject.parent.name}.md"
    assert page.is_file(), f"write {page.relative_to(ROOT)}"


def test_release_sets_every_version_and_pin(tmp_path: Path) -> None:
    for path in PYPROJECTS:
        target = tmp_path / path.relative_to(ROOT)
        target.parent.mkdir(parents=True)
        shutil.copy(path, target)
    command = [sys.executable, str(ROOT / "scripts" / "release.py"), "9.8.7", "--versions-only"]
    subprocess.run([*command, "--root", str(tmp_path)], check=True, capture_output=True, timeout=60)
    old = read(PYPROJECTS[0])["project"]["version"]
    for path in PYPROJECTS:
        before = path.read_text(encoding="utf-8")
        after = (tmp_path / path.relative_to(ROOT)).read_text(encoding="utf-8")
        assert f'version = "{old}"' not in after
        assert after.count("9.8.7") == 1 + len(re.findall(r'"dsh-[^"]*==', before))


def test_release_refuses_what_is_no_version(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "release.py"), "v1", "--root", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "'v1' is not X.Y.Z" in done.stderr
