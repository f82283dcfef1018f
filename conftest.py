"""The one conftest: async tests run under anyio's plugin on asyncio and trio."""

import inspect
from typing import Any

import pytest


def _has_asyncio_mark(collector: pytest.Module | pytest.Class, obj: object) -> bool:
    own = getattr(obj, "pytestmark", [])
    return any(mark.name == "asyncio" for mark in own) or (
        collector.get_closest_marker("asyncio") is not None
    )


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class,
    name: str,
    obj: Any,  # whatever a test module holds under a collected name
) -> None:
    if not collector.istestfunction(obj, name):
        return
    inner = getattr(getattr(obj, "hypothesis", None), "inner_test", obj)
    if inspect.iscoroutinefunction(inner) and not _has_asyncio_mark(collector, obj):
        pytest.mark.anyio(obj)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    backend: str = request.param
    return backend
