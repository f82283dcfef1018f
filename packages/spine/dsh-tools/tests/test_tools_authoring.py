"""What `@tool` makes of a function."""

import dataclasses
import enum
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Literal, NewType, NotRequired, TypedDict, cast

import msgspec
import pytest
import typing_extensions
from pydantic import AfterValidator, BaseModel, Field
from typing_extensions import TypeAliasType

from dsh_brand import Json, JsonValue
from dsh_tools import (
    JsonSchemaError,
    Number,
    ToolDeclarationError,
    ToolRunContext,
    ToolSuccess,
    tool,
)
from dsh_tools.testing import code_of, text_of, tool_bench


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: Annotated[float, Field(description="Up.")] = 0.0


@dataclasses.dataclass
class Span:
    kind: Literal["span"]
    end: int | None = None


class Cut(msgspec.Struct, rename="camel"):
    kind: Literal["cut"]
    at_line: int


PlantId = NewType("PlantId", str)
PlantIds = TypeAliasType("PlantIds", list[PlantId] | None)


class Todo(TypedDict):
    content: str
    note: NotRequired[str]


def test_T34_T35_the_schema_follows_the_signature() -> None:
    @tool
    async def every(
        text: Annotated[str, "Some text."],
        whole: int,
        real: float,
        any_number: Number,
        flag: bool,
        nothing: None,
        names: list[str],
        mode: Literal["a", "b"],
        color: Color,
        free: JsonValue,
        table: dict[str, JsonValue],
        point: Point,
        todo: list[Todo],
        part: Span | Cut,
        maybe: int | None,
        run: ToolRunContext,
        limit: int | None = None,
        more: str = "x",
    ) -> str:
        """Take every kind of value."""
        return ""

    point: JsonValue = {
        "type": "object",
        "properties": {
            "x": {"type": "integer"},
            "y": {"type": "number", "description": "Up."},
        },
        "required": ["x"],
        "additionalProperties": False,
    }
    todo: JsonValue = {
        "type": "object",
        "properties": {"content": {"type": "string"}, "note": {"type": "string"}},
        "required": ["content"],
        "additionalProperties": False,
    }
    span: JsonValue = {
        "type": "object",
        "properties": {"kind": {"type": "string", "enum": ["span"]}, "end": {"type": "integer"}},
        "required": ["kind"],
        "additionalProperties": False,
    }
    cut: JsonValue = {
        "type": "object",
        "properties": {"kind": {"type": "string", "enum": ["cut"]}, "atLine": {"type": "integer"}},
        "required": ["kind", "atLine"],
        "additionalProperties": False,
    }
    properties: dict[str, JsonValue] = {
        "text": {"type": "string", "description": "Some text."},
        "whole": {"type": "integer"},
        "real": {"type": "number"},
        "any_number": {"type": "number"},
        "flag": {"type": "boolean"},
        "nothing": {"type": "null"},
        "names": {"type": "array", "items": {"type": "string"}},
        "mode": {"type": "string", "enum": ["a", "b"]},
        "color": {"type": "string", "enum": ["red", "blue"]},
        "free": {},
        "table": {"type": "object", "additionalProperties": True},
        "point": point,
        "todo": {"type": "array", "items": todo},
        "part": {"oneOf": [span, cut]},
        "maybe": {"oneOf": [{"type": "integer"}, {"type": "null"}]},
        "limit": {"type": "integer"},
        "more": {"type": "string"},
    }
    required = [name for name in properties if name not in {"limit", "more"}]
    assert every.parameters == {"type": "object", "properties": properties, "required": required}
    assert list(every.parameters) == ["type", "properties", "required"]
    assert list(properties["text"]) == ["type", "description"]  # type: ignore[arg-type]  # an object


def test_T34_a_tool_without_parameters() -> None:
    @tool
    async def ping() -> str:
        """Answer."""
        return "pong"

    assert ping.parameters == {"type": "object", "properties": {}}
    assert (ping.name, ping.description) == ("ping", "Answer.")


GOOGLE = """Find a word.

    It may be long.

    Args:
        word: What to
            look for.
        limit (int): How many.

    Returns:
        Places.
    """
NUMPY = """Find a word.

    It may be long.

    Parameters
    ----------
    word : str
        What to
        look for.
    limit
        How many.

    Returns
    -------
    str
        Places.
    """
SPHINX = """Find a word.

    It may be long.

    :param word: What to
        look for.
    :param limit: How many.
    :returns: Places.
    """


@pytest.mark.parametrize("docstring", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_T32_docstrings_describe_tool_and_parameters(docstring: str) -> None:
    async def find(word: str, limit: int = 3) -> str:
        return word

    find.__doc__ = docstring
    found = tool(find)
    assert found.description == "Find a word.\n\nIt may be long."
    assert found.parameters["properties"] == {
        "word": {"type": "string", "description": "What to look for."},
        "limit": {"type": "integer", "description": "How many."},
    }


def test_T32_an_explicit_description_beats_the_docstring() -> None:
    @tool(name="seek", description="Another text.")
    async def find(word: Annotated[str, Field(description="Explicit.")]) -> str:
        """Find.

        Args:
            word: From the docstring.
        """
        return word

    assert (found := find).name == "seek"
    assert found.description == "Another text."
    assert found.parameters["properties"] == {
        "word": {"type": "string", "description": "Explicit."}
    }


async def undocumented(x: int) -> str:
    return ""


async def ghost(x: int) -> str:
    """Do.

    Args:
        y: Nobody.
    """
    return ""


async def starred(*args: int) -> str:
    """Do."""
    return ""


async def positional(x: int, /) -> str:
    """Do."""
    return ""


async def unannotated(x) -> str:  # type: ignore[no-untyped-def]  # what is tested
    """Do."""
    return ""


async def two_contexts(a: ToolRunContext, b: ToolRunContext) -> str:
    """Do."""
    return ""


async def tuples(x: tuple[int, int]) -> str:
    """Do."""
    return ""


async def typed_values(x: dict[str, int]) -> str:
    """Do."""
    return ""


async def overlapping(x: int | float) -> str:
    """Do."""
    return ""


async def constrained(x: Annotated[int, Field(ge=1)]) -> str:
    """Do."""
    return ""


async def unresolved(x: "Nowhere") -> str:  # type: ignore[name-defined]  # noqa: F821  # what is tested
    """Do."""
    return ""


class Node(BaseModel):
    below: list["Node"]


async def recursive(x: Node) -> str:
    """Do."""
    return ""


async def mixed(x: Literal["a", 1]) -> str:
    """Do."""
    return ""


async def silent(x: int):  # type: ignore[no-untyped-def]  # what is tested
    """Do."""


async def unrendered(x: int) -> int:
    """Do."""
    return x


def synchronous(x: int) -> str:
    """Do."""
    return ""


async def yielding(x: int) -> AsyncIterator[str]:
    """Do."""
    yield ""


async def defaulted(x: int = Field(3, description="X.")) -> str:
    """Do."""
    return ""


class Owner:
    async def method(self, x: int) -> str:
        """Do."""
        return str(x)


@pytest.mark.parametrize(
    ("function", "named"),
    [
        (yielding, "it yields"),
        (defaulted, "Annotated"),
        (Owner.method, "bound method"),
        (Owner, "takes a function"),
        (partial(synchronous, 1), "takes a function"),
        ("find", "name='find'"),
        (undocumented, "description"),
        (ghost, "'y'"),
        (starred, "'args'"),
        (positional, "'x'"),
        (unannotated, "'x'"),
        (two_contexts, "'b'"),
        (tuples, "'x'"),
        (typed_values, "'x'"),
        (overlapping, "Number"),
        (constrained, "'x'"),
        (unresolved, "Nowhere"),
        (recursive, "Node"),
        (mixed, "'x'"),
        (silent, "returns"),
        (unrendered, "render"),
        (synchronous, "thread=True"),
    ],
)
def test_T31_T33_T37_T41_problems_show_at_decoration(function: object, named: str) -> None:
    with pytest.raises(ToolDeclarationError, match=named):
        tool(function)  # type: ignore[call-overload]  # any function


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"timeout": 3}, "there are cancel, concurrency_safe"),
        ({"timeout_ms": 0}, "timeout_ms"),
        ({"timeout_ms": "3"}, "timeout_ms"),
        ({"timeout_ms": True}, "timeout_ms"),
        ({"cancel": "hard"}, "'scope' or 'cooperative'"),
        ({"concurrency_safe": "yes"}, "concurrency_safe"),
        ({"render": "text"}, "render"),
        ({"present_call": {}}, "present_call"),
        ({"description": 3}, "description"),
        ({"name": "find it!"}, "'find it!'"),
        ({"name": ""}, "1 to 64"),
        ({"thread": True}, "synchronous"),
    ],
)
def test_T31_wrong_options_show_at_decoration(options: dict[str, object], named: str) -> None:
    async def find(x: int) -> str:
        """Find."""
        return ""

    with pytest.raises(ToolDeclarationError, match=named):
        tool(**options)(find)  # type: ignore[call-overload]  # any options


def test_T35_named_types_stand_for_what_they_name() -> None:
    @tool
    async def find(plant: PlantId, others: PlantIds = None) -> str:
        """Find."""
        return ""

    assert find.parameters == {
        "type": "object",
        "properties": {
            "plant": {"type": "string"},
            "others": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["plant"],
    }


async def test_T31_a_bound_method_becomes_a_tool() -> None:
    async with tool_bench(tool(Owner().method)) as bench:
        assert text_of(await bench.run("method", x=3)) == "3"


async def test_T35_T40_T41_unions_and_nested_types_arrive_typed_and_leave_as_json() -> None:
    seen: list[object] = []

    @tool(render=lambda arguments, value: "shown")
    async def work(
        part: Span | Cut | None,
        parts: list[Span | Cut | str],
        color: Color = Color.RED,
        todo: Todo | None = None,
        anything: Json = None,
    ) -> list[Span | Cut | Literal["none"] | float | None]:
        """Work."""
        seen.append((part, parts, color, todo, anything))
        return [Span("span", 3), Cut(kind="cut", at_line=1), "none", 1.5, None]

    async with tool_bench(work) as bench:
        span, cut = {"kind": "span", "end": 2}, {"kind": "cut", "atLine": 7}
        given = {"part": cut, "parts": [span, "text"], "color": "blue", "anything": {"a": [1]}}
        result = await bench.run("work", **given, todo={"content": "c"})
        assert isinstance(result, ToolSuccess)
        assert result.value == [
            {"kind": "span", "end": 3},
            {"kind": "cut", "atLine": 1},
            "none",
            1.5,
            None,
        ]
        whole = (
            Cut(kind="cut", at_line=7),
            [Span("span", 2), "text"],
            Color.BLUE,
            {"content": "c"},
            {"a": [1]},
        )
        assert seen == [whole]
        anything = seen[0][4]  # type: ignore[index]  # the tuple above
        anything["a"].append(2)  # T40: its own, thawed
        wrong = await bench.run("work", part={"kind": "cut"}, parts=[1])
        assert code_of(wrong) == "INVALID_ARGS"
        assert "'part'" in text_of(wrong)
        assert "'parts[0]'" in text_of(wrong)


async def test_T39_what_validators_refuse_is_told_with_its_path() -> None:
    def even(value: int) -> int:
        if value % 2:
            raise ValueError("odd")
        return value

    Even = Annotated[int, AfterValidator(even)]  # noqa: N806  # a type

    @tool
    async def work(one: Even, many: list[Even]) -> str:
        """Work."""
        return ""

    async with tool_bench(work) as bench:
        assert text_of(await bench.run("work", one=2, many=[2, 4])) == "(no output)"
        wrong = text_of(await bench.run("work", one=1, many=[2, 3]))
        assert "'one': Value error, odd" in wrong
        assert "'many[1]': Value error, odd" in wrong


def test_T41_the_return_annotation_gives_the_output_schema() -> None:
    @tool(render=lambda arguments, value: f"{value['atLine']}")
    async def cut() -> Cut:
        """Cut."""
        return Cut(kind="cut", at_line=3)

    @tool(output={"type": "integer"}, render=lambda arguments, value: str(value))
    async def count() -> object:
        """Count."""
        return 3

    assert cut.output.schema["required"] == ["kind", "atLine"]
    assert count.output.schema == {"type": "integer"}
    with pytest.raises(JsonSchemaError):
        tool(output={"anyOf": []}, render=lambda arguments, value: "")(count.function)


def test_T43_only_exactly_true_is_concurrency_safe() -> None:
    @tool(concurrency_safe=lambda arguments: cast("bool", arguments["x"]))
    async def sometimes(x: Json) -> str:
        """Do."""
        return ""

    @tool(concurrency_safe=True)
    async def always(x: int) -> str:
        """Do."""
        return ""

    assert sometimes.is_concurrency_safe is not None
    assert [sometimes.is_concurrency_safe({"x": x}) for x in (True, 1, "yes")] == [
        True,
        False,
        False,
    ]
    assert always.is_concurrency_safe is not None
    assert [always.is_concurrency_safe(a) for a in ({"x": 1}, {"x": "1"}, "raw")] == [
        True,
        False,
        False,
    ]
    assert (tool(name="n", description="d")(always.function)).is_concurrency_safe is None


def test_T44_presenters_do_not_see_arguments_that_do_not_fit() -> None:
    from dsh_tools.presentation import GenericCall

    @tool(present_call=lambda arguments: GenericCall(f"x{arguments['x']}"))
    async def shown(x: int) -> str:
        """Do."""
        return ""

    assert shown.present_call is not None
    assert shown.present_call({"x": 1}) == GenericCall("x1")
    assert shown.present_call({"y": 1}) is None
    assert shown.present_call(None) is None


async def test_types_of_a_tool_are_those_of_its_function() -> None:
    @tool
    async def bare(x: int) -> str:
        """Show."""
        return str(x)

    @tool(render=lambda arguments, value: "", timeout_ms=5)
    async def configured(x: int) -> int:
        """Double."""
        return x * 2

    text: str = await bare(1)
    number: int = await configured(x=2)
    assert (text, number, configured.timeout_ms) == ("1", 4, 5)
    assert await bare("s") == "s"  # type: ignore[arg-type]  # what a checker must refuse
    with pytest.raises(ToolDeclarationError, match="timout_ms"):
        tool(timout_ms=5)  # type: ignore[call-overload]  # what a checker must refuse


def test_a_tool_is_still_its_function() -> None:
    @tool(thread=True)
    def double(x: int) -> str:
        """Double."""
        return str(x * 2)

    assert double(4) == "8"


def odd(value: int) -> int:
    if value % 2 == 0:
        raise ValueError("must be odd")
    return value


def test_T37_validators_are_allowed_where_constraints_are_not() -> None:
    @tool
    async def pick(x: Annotated[int, AfterValidator(odd)]) -> str:
        """Pick."""
        return ""

    assert pick.parameters["properties"] == {"x": {"type": "integer"}}


def test_griffe_is_loaded_only_for_docstrings_that_describe_parameters() -> None:
    code = """if True:
        import sys
        from dsh_tools import tool
        @tool
        async def plain(x: int) -> str:
            "Do."
        print("griffe" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_importing_loads_neither_pydantic_nor_griffe() -> None:
    code = "import sys, dsh_tools; print([m for m in ('pydantic', 'griffe') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_T33_a_body_may_use_what_is_assigned_after_the_decoration() -> None:
    @tool
    async def later() -> str:
        """Says what comes later."""
        return word

    word = "hi"
    assert await later() == "hi"


async def test_T35_T36_any_json_with_a_default_stays_any_json() -> None:
    @tool
    async def take(value: JsonValue = None) -> str:
        """Take."""
        return repr(value)

    assert take.parameters == {"type": "object", "properties": {"value": {}}}
    async with tool_bench(take) as bench:
        assert text_of(await bench.run("take")) == "None"
        assert text_of(await bench.run("take", value=None)) == "None"
        assert text_of(await bench.run("take", value=[1, None])) == "[1, None]"


class Item(typing_extensions.TypedDict):
    name: str
    size: int


async def test_T35_typed_dicts_of_typing_extensions_are_objects() -> None:
    """Before Python 3.12 pydantic takes no others, so plugins have them."""

    @tool(render=lambda arguments, value: f"{value['name']} {value['size']}")
    async def give(given: Item) -> Item:
        """Give it back."""
        return given

    async with tool_bench(give) as bench:
        assert text_of(await bench.run("give", given={"name": "a", "size": 2})) == "a 2"
        assert "'given.size'" in text_of(await bench.run("give", given={"name": "a"}))
