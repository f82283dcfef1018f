"""The catalog is complete, current, and notices what its sources leave unsaid."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "gen_catalog.py"

KERNEL = '''
from typing import ClassVar, Generic, TypeVar

R = TypeVar("R")


class Event:
    name: ClassVar[str]


class Emit(Event):
    """Calls everybody."""


class Waterfall(Event, Generic[R]):
    """Runs around."""


class Service:
    key: ClassVar[str]

    async def init(self) -> None:
        """Start."""
'''

SAMPLE = '''
from typing import ClassVar

from dsh_cordis import Emit, Service, Waterfall
from dsh_session import SessionEventData


class Store(Service):
    """Keeps jars. They stay cold.

    Longer text with `code`.
    """

    key: ClassVar[str] = "jars"

    async def init(self) -> None:
        """Not part of the catalog: the kernel calls it."""

    def take(self, name: str, *, count: int = 1) -> bytes:
        """Take a jar.

        Args:
            name: As on the label.

        Raises:
            KeyError: There is no such jar.
        """
        self.ctx.emit(JarTaken(jar=name))
        return b""

    @property
    def size(self) -> int:
        """Jars in store."""
        return 0


class CellarStore(Store):
    """Keeps jars in the cellar."""

    def descend(self) -> None:
        """Go down."""


class JarEvent(Emit):
    """Base of the jar events."""

    subject: ClassVar[str | None] = "jar"
    jar: str


class JarTaken(JarEvent):
    """A jar left the store."""

    name: ClassVar[str] = "jar/taken"
    hand: str | None = None
    """Who took it."""


class JarFilter(Waterfall[list[str] | None]):
    """Chooses jars.

    Attributes:
        jars: All labels.
    """

    name: ClassVar[str] = "jar/filter"
    jars: list[str]


class JarLogged(SessionEventData):
    """A jar was written down."""

    type: ClassVar[str] = "jar/logged"
    surface: ClassVar[bool] = True
    jar_label: str
    """The label."""
'''

LISTENER = """
import dsh_jars
from dsh_jars import JarTaken


class Watcher:
    def start(self, ctx):
        ctx.on(JarTaken, self.taken)

    def _restart(self, ctx):
        ctx.on(JarTaken, self.taken)
        ctx.on(dsh_jars.JarFilter, self.taken)
"""

SESSION = """
from typing import ClassVar


class SessionEventData:
    type: ClassVar[str]
    surface: ClassVar[bool] = False
"""

MARKERS = "".join(
    f"<!-- catalog:begin {name} --><!-- catalog:end {name} -->\n"
    for name in ("services", "events", "session-events")
)


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def add_package(root: Path, dist: str, source: str, *, page: str = MARKERS) -> Path:
    folder = root / "packages" / "spine" / dist
    project = f'[project]\nname = "{dist}"\nversion = "1.0.0"\ndescription = "Sample"\n'
    write(folder / "pyproject.toml", project)
    write(folder / "README.md", f"# {dist}\n\nWritten by hand.\n")
    write(root / "docs" / "subsystems" / f"{dist}.md", f"# {dist}\n\n{page}")
    return write(folder / "src" / dist.replace("-", "_") / "__init__.py", source)


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A workspace with a kernel, a package that offers things and one that listens."""
    write(tmp_path / "docs" / "catalog.md", f"# Catalog\n\n{MARKERS}")
    add_package(tmp_path, "dsh-cordis", KERNEL, page="")
    add_package(tmp_path, "dsh-session", SESSION, page="")
    add_package(tmp_path, "dsh-jars", SAMPLE)
    add_package(tmp_path, "dsh-watch", LISTENER, page="")
    return tmp_path


def run(root: Path, *flags: str) -> tuple[int, str]:
    command = [sys.executable, str(SCRIPT), "--root", str(root), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout


def source_of(root: Path) -> Path:
    return root / "packages" / "spine" / "dsh-jars" / "src" / "dsh_jars" / "__init__.py"


def page_of(root: Path) -> str:
    return (root / "docs" / "subsystems" / "dsh-jars.md").read_text(encoding="utf-8")


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_the_catalog_of_this_repository_is_complete_and_current() -> None:
    code, output = run(ROOT, "--check")
    assert code == 0, output


def test_a_generated_catalog_passes_its_check(sample: Path) -> None:
    code, output = run(sample)
    assert code == 0, output
    assert run(sample, "--check") == (0, "catalog: 2 services, 2 events, 1 session events\n")


def test_a_changed_docstring_makes_the_check_fail_and_name_the_pages(sample: Path) -> None:
    run(sample)
    change(source_of(sample), "Keeps jars. They", "Holds jars. They")
    code, output = run(sample, "--check")
    assert code == 1
    assert output.splitlines()[:4] == [
        "stale: docs/subsystems/dsh-jars.md",
        "stale: packages/spine/dsh-jars/README.md",
        "stale: docs/catalog.md",
        "stale: docs/catalog.json",
    ]
    assert "Keeps jars. They" in page_of(sample)


def test_a_line_inserted_elsewhere_makes_nothing_stale(sample: Path) -> None:
    run(sample)
    source = source_of(sample)
    source.write_text("\n\n\n" + source.read_text(encoding="utf-8"), encoding="utf-8")
    assert run(sample, "--check")[0] == 0


def test_text_outside_the_markers_stays(sample: Path) -> None:
    page = sample / "docs" / "subsystems" / "dsh-jars.md"
    change(page, "# dsh-jars\n", "# dsh-jars\n\nBefore.\n")
    page.write_text(page.read_text(encoding="utf-8") + "\nAfter.\n", encoding="utf-8")
    run(sample)
    assert page_of(sample).startswith("# dsh-jars\n\nBefore.\n")
    assert page_of(sample).endswith("\nAfter.\n")
    assert "Written by hand." in (source_of(sample).parents[2] / "README.md").read_text("utf-8")


def test_a_service_is_shown_with_signatures_parameters_and_errors(sample: Path) -> None:
    run(sample)
    page = page_of(sample)
    assert "### `ctx.jars`: `Store`" in page
    assert "Keeps jars. They stay cold.\n\nLonger text with `code`." in page
    assert "```py\ndef take(name: str, *, count: int = 1) -> bytes\n```" in page
    assert "- `name`: As on the label." in page
    assert "- `KeyError`: There is no such jar." in page
    assert "```py\nsize: int\n```" in page
    assert "ctx.jars.init" not in page


def test_an_implementation_of_a_seam_shows_only_what_it_adds(sample: Path) -> None:
    run(sample)
    catalog = json.loads((sample / "docs" / "catalog.json").read_text(encoding="utf-8"))
    (jars,) = [package for package in catalog["packages"] if package["dist"] == "dsh-jars"]
    cellar = jars["services"][0]
    assert cellar["name"] == "CellarStore"
    assert cellar["implements"] == "dsh_jars.Store"
    assert [method["name"] for method in cellar["methods"]] == ["descend"]


def test_an_event_is_shown_with_mode_result_scope_and_payload(sample: Path) -> None:
    run(sample)
    page = page_of(sample)
    assert "`Emit`, [`dsh_jars.JarTaken`]" in page
    assert "scoped to `jar`" in page
    assert (
        "- `jar` (`str`): The subject: the event reaches the listeners in its scope.\n- `hand` (`str | None`, default `None`): Who took it."
        in page
    )
    assert "`Waterfall[list[str] | None]`, [`dsh_jars.JarFilter`]" in page
    assert "- `jars` (`list[str]`): All labels." in page


def test_a_session_event_is_shown_with_its_json_names(sample: Path) -> None:
    run(sample)
    page = page_of(sample)
    assert "### `jar/logged`: `JarLogged`" in page
    assert ", on the surface" in page
    assert "- `jarLabel` (`str`): The label." in page


def test_the_event_map_names_who_dispatches_and_who_hears(sample: Path) -> None:
    run(sample)
    catalog = json.loads((sample / "docs" / "catalog.json").read_text(encoding="utf-8"))
    assert catalog["event_map"] == [
        {"event": "jar/filter", "producers": [], "consumers": ["dsh_watch.Watcher"]},
        {
            "event": "jar/taken",
            "producers": ["dsh_jars.Store.take"],
            "consumers": ["dsh_watch.Watcher", "dsh_watch.Watcher.start"],
        },
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        pytest.param(
            '    """A jar left the store."""\n',
            "",
            "dsh_jars.JarTaken: event 'jar/taken' has no docstring",
            id="event without docstring",
        ),
        pytest.param(
            '    """Who took it."""\n',
            "",
            "dsh_jars.JarTaken.hand: field of event 'jar/taken' has no description",
            id="payload field without description",
        ),
        pytest.param(
            "class JarEvent(Emit)",
            "from dsh_cordis import Event\n\n\nclass JarEvent(Event)",
            "dsh_jars.JarTaken: event 'jar/taken' has no mode; derive it from one",
            id="event without mode",
        ),
        pytest.param(
            '    """Keeps jars in the cellar."""\n',
            "",
            "dsh_jars.CellarStore: service 'jars' has no docstring",
            id="service without docstring",
        ),
        pytest.param(
            '        """Go down."""\n',
            "        return\n",
            "dsh_jars.CellarStore.descend: public method of a service, no docstring",
            id="method without docstring",
        ),
        pytest.param(
            '    """A jar was written down."""\n',
            "",
            "dsh_jars.JarLogged: session event 'jar/logged' has no docstring",
            id="session event without docstring",
        ),
    ],
)
def test_what_the_sources_leave_unsaid_is_an_error(
    sample: Path, old: str, new: str, problem: str
) -> None:
    change(source_of(sample), old, new)
    for flags in ((), ("--check",)):
        code, output = run(sample, *flags)
        assert code == 1
        assert f"problem: {problem}\n" in output


def test_a_package_without_a_page_is_an_error(sample: Path) -> None:
    (sample / "docs" / "subsystems" / "dsh-jars.md").unlink()
    code, output = run(sample)
    assert code == 1
    assert "problem: docs/subsystems/dsh-jars.md: the page is missing" in output


def test_a_page_without_a_region_is_an_error(sample: Path) -> None:
    write(sample / "docs" / "subsystems" / "dsh-jars.md", "# dsh-jars\n")
    code, output = run(sample)
    assert code == 1
    assert "docs/subsystems/dsh-jars.md: no region for its events; add <!--" in output
