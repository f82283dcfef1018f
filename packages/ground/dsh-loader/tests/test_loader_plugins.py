import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from dsh_loader import (
    InstalledPlugin,
    PluginNotFound,
    PluginRefused,
    installed_plugins,
    resolve_plugin,
)


def install(folder: Path, dist: str, points: str) -> None:
    """Make what an installed distribution leaves in its folder."""
    info = folder / f"{dist.replace('-', '_')}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.2\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(f"[dsh.plugins]\n{points}\n", encoding="utf-8")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith("loader_sample")]:
        monkeypatch.delitem(sys.modules, name)
    return tmp_path


def module(site: Path, name: str, text: str) -> None:
    (site / f"{name}.py").write_text(dedent(text), encoding="utf-8")


def test_an_installed_plugin_is_listed_and_found_by_name(site: Path) -> None:
    install(site, "loader-sample", "sample = loader_sample_one")
    module(site, "loader_sample_one", "def apply(ctx): ...")
    listed = [plugin for plugin in installed_plugins() if plugin.dist == "loader-sample"]
    assert listed == [InstalledPlugin("sample", "loader-sample", "1.2", value="loader_sample_one")]
    assert resolve_plugin("sample") is sys.modules["loader_sample_one"]


def test_a_name_that_two_packages_offer_is_refused(site: Path) -> None:
    install(site, "loader-a", "twice = loader_sample_a")
    install(site, "loader-b", "twice = loader_sample_b")
    with pytest.raises(PluginNotFound, match=r"loader-a.*loader-b"):
        resolve_plugin("twice")


def test_an_unknown_name_says_what_is_near(site: Path) -> None:
    install(site, "loader-sample", "colourful = loader_sample_one")
    with pytest.raises(PluginNotFound, match="'colourful'") as caught:
        resolve_plugin("colorful")
    assert caught.value.code == "PLUGIN_UNKNOWN"


def test_a_module_and_attribute_is_imported(site: Path) -> None:
    module(site, "loader_sample_two", "class Holder:\n    def inner(ctx): ...\n")
    found = resolve_plugin("loader_sample_two:Holder.inner")
    assert found is sys.modules["loader_sample_two"].Holder.inner
    with pytest.raises(PluginNotFound, match="no 'nothing'"):
        resolve_plugin("loader_sample_two:nothing")


def test_a_failing_import_is_the_cause(site: Path) -> None:
    module(site, "loader_sample_bad", "raise RuntimeError('at import')")
    with pytest.raises(PluginNotFound, match="at import") as caught:
        resolve_plugin("loader_sample_bad:apply")
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_K112_a_bare_function_that_would_lose_its_declarations_is_refused(site: Path) -> None:
    module(site, "loader_sample_lost", "inject = ['llm']\ndef apply(ctx): ...\n")
    module(
        site,
        "loader_sample_kept",
        """
        class Config: ...
        def apply(ctx, config: Config): ...
        """,
    )
    with pytest.raises(PluginRefused, match="`inject`"):
        resolve_plugin("loader_sample_lost:apply")
    assert resolve_plugin("loader_sample_kept:apply") is sys.modules["loader_sample_kept"].apply


def test_importing_the_loader_brings_no_pydantic() -> None:
    code = "import sys, dsh_loader; print('pydantic' in sys.modules, bool(dsh_loader.Row))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
