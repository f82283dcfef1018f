"""The conformance check accepts good tools and names what is wrong with bad ones."""

from dataclasses import replace

import anyio
import anyio.lowlevel
import pytest

from dsh_tools import ToolDefinition, ToolOutput, ToolRunContext, ToolSuccess, tool
from dsh_tools.presentation import GenericCall, GenericResult
from dsh_tools.testing import ToolCheckError, check_tool, tool_bench


@tool(
    concurrency_safe=True,
    present_call=lambda arguments: GenericCall(f"Say {arguments['text']}"),
    present_result=lambda arguments, result: GenericResult(content=result.content),
)
async def say(text: str, times: int = 1) -> str:
    """Say a text.

    Args:
        text: What to say.
        times: How often.
    """
    await anyio.lowlevel.checkpoint()
    return " ".join([text] * times)


async def found(definition: ToolDefinition, *calls: dict[str, object]) -> str:
    with pytest.raises(ToolCheckError) as caught:
        await check_tool(definition, *calls, grace_s=0.05)
    assert caught.value.problems
    return str(caught.value)


async def test_a_good_tool_passes_and_its_results_come_back() -> None:
    results = await check_tool(say, {"text": "a"}, {"text": "b", "times": 2})
    assert [r.value for r in results if isinstance(r, ToolSuccess)] == ["a", "b b"]


async def test_the_bench_of_the_author_is_used_and_left_as_it_was() -> None:
    async with tool_bench() as bench:
        await check_tool(say, {"text": "a"}, bench=bench)
        assert bench.tools.names() == []


async def test_all_that_is_wrong_with_a_declaration_is_told() -> None:
    bad = replace(
        say,
        name="say it!",
        description=" ",
        parameters={"type": "object", "properties": {"text": {"type": "string"}}},
    )
    text = await found(bad)
    assert "its name must be" in text
    assert "no description, so" in text
    assert "parameter 'text' has no description" in text


@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "string"},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": "object", "properties": {}, "minProperties": 1},
    ],
)
async def test_T22_T23_parameters_outside_the_subset_are_found(
    parameters: dict[str, object],
) -> None:
    definition = replace(say, parameters=parameters)  # type: ignore[arg-type]  # wrong on purpose
    assert "its parameters" in await found(definition)


async def test_a_raw_tool_that_takes_anything_is_found() -> None:
    async def execute(arguments: object, run: ToolRunContext) -> object:
        return "ok"

    output = ToolOutput(schema={"type": "string"}, render=lambda arguments, value: value)
    parameters = {
        "type": "object",
        "properties": {"a": {"type": "string", "description": "It."}},
        "required": ["a"],
    }
    text = await found(ToolDefinition("raw", "Raw.", parameters, output, execute))  # type: ignore[arg-type]  # a plain dict is JSON
    assert "accepts '{'" in text


async def test_a_call_that_fails_is_found() -> None:
    @tool
    async def broken(text: str) -> str:
        """Break.

        Args:
            text: Anything.
        """
        raise ValueError("no luck")

    assert "it fails with {'text': 'a'}: Error: no luck" in await found(broken, {"text": "a"})


async def test_T106_presenters_are_pure_and_survive_old_arguments() -> None:
    counted: list[int] = []

    def counts(arguments: object) -> GenericCall:
        counted.append(1)
        return GenericCall(f"call {len(counted)}")

    assert "another view the second time" in await found(
        replace(say, present_call=counts), {"text": "a"}
    )
    fragile = replace(say, present_call=lambda arguments: GenericCall(arguments["gone"]))
    assert "present_call raises" in await found(fragile)
    wrong = replace(say, present_result=lambda arguments, result: GenericCall("x"))  # type: ignore[arg-type, return-value]  # on purpose
    assert "which is no ResultView" in await found(wrong, {"text": "a"})


async def test_a_tool_that_does_not_listen_to_an_abort_is_found() -> None:
    calls: list[str] = []

    @tool(cancel="cooperative")
    async def deaf(text: str = "") -> str:
        """Be deaf, but for the first time.

        Args:
            text: Anything.
        """
        calls.append(text)
        if len(calls) > 1:
            await anyio.sleep_forever()
        return "done"

    assert "goes on for more than 0.05 s after an abort" in await found(deaf, {"text": "a"})
