"""The order of tool schemas."""

import pytest
from pydantic import ValidationError

from dsh_llm import ToolSchema
from dsh_system_prompt import UNLISTED, Config, ToolOrderError, order_tools


def tools(*names: str) -> list[ToolSchema]:
    return [ToolSchema(name, f"about {index}", {}) for index, name in enumerate(names)]


def ordered(order: list[str] | None, *names: str, known: set[str] | None = None) -> list[str]:
    found = order_tools(tools(*names), order, known or set(names))
    return [tool.name for tool in found]


def test_T112_tools_sort_by_utf16_units() -> None:
    assert ordered(None, "b", "\ufb00", "\U0001f600", "B", "a") == [
        "B",
        "a",
        "b",
        "\U0001f600",
        "\ufb00",
    ]


def test_T112_duplicates_stay_and_keep_their_order() -> None:
    found = order_tools(tools("x", "a", "x"), None, {"x", "a"})
    assert [tool.description for tool in found] == ["about 1", "about 0", "about 2"]


def test_T112_a_configured_order_places_the_unlisted() -> None:
    assert ordered(["z", UNLISTED, "a"], "a", "c", "z", "b") == ["z", "b", "c", "a"]


def test_T112_known_but_hidden_names_are_fine_and_unknown_ones_all_named() -> None:
    assert ordered(["h", UNLISTED], "a", known={"a", "h"}) == ["a"]
    with pytest.raises(ToolOrderError, match=r"unknown tools y, x; known: a"):
        ordered(["y", UNLISTED, "x"], "a")


def test_T111_the_reserved_name_fails() -> None:
    with pytest.raises(ToolOrderError, match="reserved"):
        ordered(None, UNLISTED)


@pytest.mark.parametrize("order", [("a",), (UNLISTED, UNLISTED), (UNLISTED, "a", "a")])
def test_T112_the_configured_order_is_checked_at_load(order: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError):
        Config(tool_order=order)
