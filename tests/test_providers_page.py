"""The page about providers says what is really sent."""

import importlib.util
from pathlib import Path

import anyio

ROOT = Path(__file__).resolve().parent.parent


async def test_L118_the_dialect_tables_are_what_servers_get() -> None:
    path = ROOT / "scripts" / "gen_providers.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = script.PAGE.read_text(encoding="utf-8")
    with anyio.fail_after(30):
        fresh = script.rendered(page, await script.tables())
    assert fresh == page, "run scripts/gen_providers.py"
