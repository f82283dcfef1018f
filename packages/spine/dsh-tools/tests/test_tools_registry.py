"""Registration, visibility, and the parts of the registry that run nothing."""

import pytest

from dsh_cordis import Context, InternalError, Scope, create_scope
from dsh_llm import ToolSchema
from dsh_tools import (
    JsonSchemaError,
    ToolDeclarationError,
    ToolDefinition,
    ToolOutput,
    ToolRegistrationError,
    ToolRegistry,
    ToolRunContext,
    ToolsChange,
    ToolsResult,
    tool,
)
from dsh_tools.testing import ToolBench, code_of, text_of, tool_bench


def named(name: str, text: str = "") -> ToolDefinition:
    async def answer() -> str:
        return text or name

    return tool(name=name, description=f"About {name}.")(answer)


async def visible(bench: ToolBench, scope: object | None = None) -> list[str]:
    return bench.tools.names(scope)


async def test_T1_T2_T3_malformed_definitions_are_refused() -> None:
    async def execute(arguments: object, run: ToolRunContext) -> object:
        return None

    def made(output: object, **rest: object) -> ToolDefinition:
        return ToolDefinition(
            name="bad",
            description="",
            parameters={},
            output=output,  # type: ignore[arg-type]  # what is tested
            execute=execute,
            **rest,  # type: ignore[arg-type]  # what is tested
        )

    good = ToolOutput(schema={}, render=lambda arguments, value: "")
    async with tool_bench() as bench:
        with pytest.raises(ToolDeclarationError, match=r"'bad'.*output"):
            bench.tools.register(made(None))
        with pytest.raises(ToolDeclarationError, match=r"'bad'.*render"):
            bench.tools.register(made(ToolOutput(schema={}, render=None)))  # type: ignore[arg-type]  # what is tested
        with pytest.raises(JsonSchemaError, match="'bad'"):
            bench.tools.register(made(ToolOutput(schema={"anyOf": []}, render=good.render)))
        with pytest.raises(ToolDeclarationError, match=r"'bad'.*timeout_ms"):
            bench.tools.register(made(good, timeout_ms=float("inf")))
        with pytest.raises(ToolRegistrationError, match="reserved"):
            bench.tools.register(named("run_code"))
        assert await visible(bench) == []


async def test_T3_T8_duplicates_are_refused_within_one_layer_only() -> None:
    async with tool_bench(named("a")) as bench:
        agent = bench.agent()
        with pytest.raises(ToolRegistrationError, match="agent's context"):
            bench.tools.register(named("a"))
        same = named("a", "mine")
        agent.ctx.tools.register(same)
        with pytest.raises(ToolRegistrationError, match="in this scope"):
            agent.ctx.tools.register(same)
        assert text_of(await bench.run_as(agent, "a")) == "mine"
        assert text_of(await bench.run("a")) == "a"


async def test_T4_a_registration_ends_with_its_plugin() -> None:
    async with tool_bench() as bench:

        def plugin(ctx: Context) -> None:
            ctx.tools.register(named("a"))

        plugin.inject = ["tools"]  # type: ignore[attr-defined]  # what the kernel reads
        async with bench.ctx.plugin(plugin):
            assert await visible(bench) == ["a"]
        assert await visible(bench) == []


async def test_T5_changes_are_told_and_a_raising_listener_rolls_back() -> None:
    async with tool_bench() as bench:
        changes: list[list[str]] = []

        def changed(event: ToolsChange) -> None:
            changes.append(bench.tools.names())
            if len(changes) == 3:
                raise RuntimeError("refused")

        bench.ctx.on(ToolsChange, changed)
        bench.tools.register(named("a"))()
        bench.tools.guard(lambda run: None)
        with pytest.raises(RuntimeError, match="refused"):
            bench.tools.register(named("b"))
        assert changes == [["a"], [], ["b"], []]


async def test_T6_T123_schemas_hold_what_the_model_may_see() -> None:
    async with tool_bench(named("a")) as bench:
        bench.tools.register(tool(name="b", description="B.", defer_loading=True)(named_body))
        assert bench.tools.schemas() == (
            ToolSchema("a", "About a.", {"type": "object", "properties": {}}),
            ToolSchema("b", "B.", {"type": "object", "properties": {}}, True),
        )
        assert text_of(await bench.run("b")) == "b"


async def named_body() -> str:
    return "b"


async def test_T6_parameters_that_are_no_json_fail_there() -> None:
    async def execute(arguments: object, run: ToolRunContext) -> object:
        return None

    output = ToolOutput(schema={}, render=lambda arguments, value: "")
    odd = ToolDefinition(
        name="odd",
        description="",
        parameters={"x": {1}},  # type: ignore[dict-item]  # what is tested
        output=output,
        execute=execute,
    )
    async with tool_bench(odd) as bench:
        with pytest.raises(ToolDeclarationError, match="'odd'"):
            bench.tools.schemas()


async def test_T9_T10_nearer_registrations_shadow_and_hidden_tools_are_unknown() -> None:
    async with tool_bench(named("a"), named("b")) as bench:
        parent = bench.agent()
        child = bench.agent(parent=parent)
        parent.ctx.tools.register(named("a", "parents"))
        assert text_of(await bench.run_as(child, "a")) == "parents"
        assert bench.tools.get("a", None) is not bench.tools.get("a", child)
        child.ctx.tools.restrict(deny=["b"])
        assert code_of(await bench.run_as(child, "b")) == "UNKNOWN_TOOL"
        assert text_of(await bench.run_as(parent, "b")) == "b"
        assert bench.tools.execution_mode(bench.call("b", {}, agent=child)) == "exclusive"


async def test_T11_restrictions_are_checked() -> None:
    async with tool_bench(named("a"), named("b")) as bench:
        agent = bench.agent()
        agent.ctx.tools.register(named("own"))
        with pytest.raises(ToolRegistrationError, match="scope"):
            bench.tools.restrict(allow=["a"])
        with pytest.raises(ToolRegistrationError, match="neither"):
            agent.ctx.tools.restrict()
        with pytest.raises(ToolRegistrationError, match="transport"):
            agent.ctx.tools.restrict(deny=["run_code"])
        with pytest.raises(ToolRegistrationError, match=r"unknown tools own, z.*a, b"):
            agent.ctx.tools.restrict(deny=["z", "own", "a"])
        agent.ctx.tools.restrict(allow=[])
        assert await visible(bench, agent) == ["own"]


async def test_T12_T13_T14_restrictions_mask_what_is_inherited() -> None:
    async with tool_bench(named("a"), named("b"), named("c")) as bench:
        parent = bench.agent()
        child = bench.agent(parent=parent)
        lift = parent.ctx.tools.restrict(allow=["a", "b"])
        child.ctx.tools.restrict(deny=["a"])
        assert await visible(bench, parent) == ["a", "b"]
        assert await visible(bench, child) == ["b"]
        parent.ctx.tools.register(named("c", "parents"))
        assert await visible(bench, parent) == ["a", "b", "c"]
        assert await visible(bench, child) == ["b"]
        bench.tools.register(named("d"))
        assert await visible(bench, parent) == ["a", "b", "c"]
        lift()
        assert await visible(bench, child) == ["b", "c", "d"]
        child.ctx.tools.register(named("a"))
        assert await visible(bench, child) == ["a", "b", "c", "d"]


async def test_T15_T16_guards_run_in_order_and_the_first_denial_wins() -> None:
    async with tool_bench(named("a")) as bench:
        parent = bench.agent()
        child = bench.agent(parent=parent)
        seen: list[str] = []

        def watch(label: str, answer: str | None = None) -> None:
            def guard(run: ToolRunContext) -> str | None:
                seen.append(label)
                if label == "global":
                    child.ctx.tools.guard(lambda run: seen.append("late"))
                    bench.tools.guard(lambda run: "never in this call")
                return answer

            {"global": bench.ctx, "parent": parent.ctx}.get(label, child.ctx).tools.guard(guard)

        for label in ("own", "parent", "global"):
            watch(label)
        watch("deny", "because")
        watch("after")
        result = await bench.run_as(child, "a")
        assert text_of(result) == "Error: because"
        assert seen == ["global", "parent", "own", "deny"]
        assert text_of(await bench.run("a")) == "Error: never in this call"


async def test_T17_events_reach_the_agents_scope_its_ancestors_and_unscoped_listeners() -> None:
    async with tool_bench(named("a")) as bench:
        parent = bench.agent()
        child = bench.agent(parent=parent)
        seen: list[str] = []
        for label, ctx in (("all", bench.ctx), ("parent", parent.ctx), ("child", child.ctx)):
            ctx.on(ToolsResult, lambda event, label=label: seen.append(label))
        await bench.run_as(child, "a")
        await bench.run_as(parent, "a")
        await bench.run("a")
        assert seen == ["all", "parent", "child", "all", "parent", "all"]


async def test_T43_T92_only_certainty_lets_calls_overlap() -> None:
    def broken(arguments: object) -> bool:
        raise RuntimeError

    async def body(x: int) -> str:
        return ""

    safe = tool(name="safe", description=".", concurrency_safe=True)(body)
    doubtful = tool(name="doubtful", description=".", concurrency_safe=broken)(body)
    async with tool_bench(safe, doubtful, named("plain")) as bench:
        modes = {
            (name, str(arguments)): bench.tools.execution_mode(bench.call(name, arguments))
            for name, arguments in (
                ("safe", {"x": 1}),
                ("safe", {"x": "1"}),
                ("safe", "raw"),
                ("doubtful", {"x": 1}),
                ("plain", {}),
                ("nobody", {}),
            )
        }
        assert [key for key, mode in modes.items() if mode == "parallel"] == [("safe", "{'x': 1}")]


async def test_the_registry_contributes_its_schemas_to_the_prompt() -> None:
    async with tool_bench(named("b"), named("a")) as bench:
        agent = bench.agent()
        agent.ctx.tools.restrict(deny=["b"])
        assembled = await bench.ctx.system_prompt.assemble(agent)
        assert [schema.name for schema in assembled.tools] == ["a"]
        everyone = await bench.ctx.system_prompt.assemble(None)
        assert [schema.name for schema in everyone.tools] == ["a", "b"]


async def test_a_guard_that_raises_is_reported_as_a_failed_call_not_to_the_kernel() -> None:
    async with tool_bench(named("a")) as bench:
        reported: list[object] = []
        bench.ctx.on(InternalError, lambda event: reported.append(event.error), everywhere=True)

        def guard(run: ToolRunContext) -> str | None:
            raise ValueError("guard broke")

        bench.tools.guard(guard)
        assert text_of(await bench.run("a")) == "Error: guard broke"
        assert reported == []


class Key:
    """Tags a scope."""


class Needs(Context):
    tools: ToolRegistry


async def test_T9_a_scope_that_is_moved_sees_the_tools_of_its_new_ancestor() -> None:
    first, second, child = Key(), Key(), Key()
    scopes: list[Scope] = []

    def owner(ctx: Needs) -> None:
        create_scope(ctx, first).ctx.tools.register(named("a"))
        create_scope(ctx, second).ctx.tools.register(named("b"))
        scopes.append(create_scope(ctx, child, first))

    async with tool_bench() as bench:
        await bench.ctx.plugin(owner)
        assert await visible(bench, child) == ["a"]
        binding = scopes[0].binding
        assert binding is not None
        binding.move(second)
        assert await visible(bench, child) == ["b"]
        binding.move(None)
        assert await visible(bench, child) == []


async def test_scopes_that_cannot_be_referred_to_weakly_work() -> None:
    class Slotted:
        __slots__ = ()

    async with tool_bench(named("a")) as bench:
        assert await visible(bench, Slotted()) == ["a"]
        assert await visible(bench, []) == ["a"]
