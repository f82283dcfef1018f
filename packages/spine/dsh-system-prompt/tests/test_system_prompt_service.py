"""Registration and assembly."""

import gc
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from dsh_cordis import (
    ConfigError,
    Context,
    Next,
    bind_scope_parent,
    create_scope,
)
from dsh_llm import RuntimeContextSource, SnapshotSection, ToolSchema, message_text
from dsh_system_prompt import (
    AssemblyContext,
    CompletePromptError,
    Config,
    PromptAssembly,
    PromptContext,
    PromptRegistrationError,
    PromptSection,
    SystemPrompt,
    SystemPromptAssemble,
    SystemPromptChange,
    ToolOrderError,
    ToolsContribution,
    UnknownVariableError,
    cleared_context_message,
    context_order,
    render_contexts,
    render_prompt,
    runtime_context_message,
    section_order,
    texts,
)
from dsh_system_prompt.scopes import ScopeCache, WatchedTable

BARE = Config(include_harness_identity=False)


class Needs(Context):
    system_prompt: SystemPrompt


class Bench:
    """A context with the service, and scopes made by a plugin that has it."""

    def __init__(self, ctx: Context, owner: Needs) -> None:
        self.ctx = ctx
        self.owner = owner
        self.prompt: SystemPrompt = owner.system_prompt

    def scope(self, key: object, parent: object | None = None) -> SystemPrompt:
        view: SystemPrompt = create_scope(self.owner, key, parent).ctx.system_prompt
        return view

    async def text(self, scope: object | None = None) -> str:
        return render_prompt(await self.prompt.assemble(scope))


@asynccontextmanager
async def bench(config: Config = BARE) -> AsyncIterator[Bench]:
    async with Context() as ctx:
        await ctx.plugin(SystemPrompt, config)
        owners: list[Needs] = []

        def own(needs: Needs) -> None:
            owners.append(needs)

        await ctx.plugin(own)
        yield Bench(ctx, owners[0])


async def test_T109_identity_comes_first_and_the_persona_is_configurable() -> None:
    async with bench(Config(persona="You like {{food}}.")) as b:
        b.prompt.variable("food", "soup")
        assert await b.text() == f"{texts.IDENTITY}\n\nYou like soup."
    async with bench() as b:
        assembly = await b.prompt.assemble(None)
        assert [section.name for section in assembly.sections] == ["deployment:persona"]
        assert render_prompt(assembly) == ""


def test_T109_positions_are_one_table() -> None:
    assert (section_order("harness:identity"), section_order("deployment:persona")) == (-1000, 0)
    assert [section_order(f"tool:{name}") for name in ("read", "write", "edit", "glob")] == [
        1100,
        1200,
        1300,
        1400,
    ]
    assert context_order("approval:policy") == 115


async def test_T108_sections_sort_by_order_then_by_utf16_name() -> None:
    async with bench() as b:
        for name, order in (("\ufb00", 1), ("\U0001f600", 1), ("b", 0.5), ("a", 2)):
            b.prompt.section(name, order, name)
        assembly = await b.prompt.assemble(None)
        assert [s.name for s in assembly.sections[1:]] == ["b", "\U0001f600", "\ufb00", "a"]


async def test_T108_orders_are_finite_and_names_unique_in_a_layer() -> None:
    async with bench() as b:
        for bad in (float("nan"), float("inf"), True):
            with pytest.raises(TypeError, match="finite"):
                b.prompt.section("a", bad, "")
        b.prompt.section("a", 1, "")
        with pytest.raises(PromptRegistrationError, match="'a'"):
            b.prompt.section("a", 2, "")
        with pytest.raises(PromptRegistrationError, match="'Cwd'"):
            b.prompt.variable("Cwd", "")


async def test_T108_a_scoped_section_shadows_and_the_shadowed_provider_never_runs() -> None:
    async with bench() as b:
        ran: list[str] = []

        def shadowed(context: AssemblyContext) -> str:
            ran.append("shadowed")
            return "everyone's"

        key = object()
        b.prompt.section("a", 1, shadowed)
        b.scope(key).section("a", 1, "mine")
        assert await b.text(key) == "mine"
        assert ran == []
        assert await b.text() == "everyone's"


async def test_T107_registrations_tell_of_themselves_and_a_raising_listener_rolls_back() -> None:
    async with bench() as b:
        changes: list[int] = []

        def changed(event: SystemPromptChange) -> None:
            changes.append(1)
            if len(changes) == 3:
                raise RuntimeError("refused")

        b.ctx.on(SystemPromptChange, changed)
        b.prompt.section("a", 1, "text")()
        with pytest.raises(RuntimeError, match="refused"):
            b.prompt.section("b", 1, "text")
        assert len(changes) == 4
        assert await b.text() == ""


async def test_T110_variables_come_first_and_shadowed_ones_run_too() -> None:
    async with bench() as b:
        ran: list[str] = []
        key = object()

        def value(label: str) -> str:
            ran.append(label)
            return label

        b.prompt.variable("x", lambda context: value("everyone"))
        b.scope(key).variable("x", lambda context: value("mine"))
        b.prompt.variable("none", lambda context: None)
        b.prompt.section("s", 1, lambda context: value(f"section {context.variables['x']}"))
        assembly = await b.prompt.assemble(key)
        assert ran == ["everyone", "mine", "section mine"]
        assert assembly.variables == {"x": "mine", "none": None}
        given = await b.prompt.assemble(None, variables={"x": "given", "cwd": "/w"})
        assert given.variables == {"x": "given", "none": None, "cwd": "/w"}


async def test_T110_membership_is_fixed_when_the_variables_are_known() -> None:
    async with bench() as b:

        def early(context: AssemblyContext) -> str:
            if not added:
                added.append(1)
                b.prompt.section("from a variable", 1, "counts")
            return ""

        def late(context: AssemblyContext) -> str:
            if len(added) == 1:
                added.append(2)
                b.prompt.section("from a section", 3, "does not count yet")
            return "s"

        added: list[int] = []
        b.prompt.variable("v", early)
        b.prompt.section("s", 2, late)
        assert await b.text() == "counts\n\ns"
        assert await b.text() == "counts\n\ns\n\ndoes not count yet"


async def test_T110_a_variable_registered_by_one_counts_in_a_layer_not_reached_yet() -> None:
    async with bench() as b:
        key = object()
        mine = b.scope(key)

        def early(context: AssemblyContext) -> str:
            if not added:
                added.append(1)
                b.prompt.variable("same_table", "does not count yet")
                mine.variable("nearer", "counts")
            return ""

        added: list[int] = []
        b.prompt.variable("v", early)
        assert (await b.prompt.assemble(key)).variables == {"v": "", "nearer": "counts"}
        assert (await b.prompt.assemble(key)).variables == {
            "v": "",
            "same_table": "does not count yet",
            "nearer": "counts",
        }


class Key:
    """A scope key that can be referred to weakly."""


async def test_T113_an_assembly_serves_until_something_in_it_changes() -> None:
    async with bench(Config(include_harness_identity=False, persona="{{x}}")) as b:
        key = Key()
        said = {"x": "1", "section": "s", "context": "c"}
        contributed = [ToolsContribution(schemas=[ToolSchema("a", "A.", {})])]
        b.prompt.variable("x", lambda context: said["x"])
        b.prompt.section("s", 1, lambda context: said["section"])
        b.prompt.context("c", 1, lambda context: said["context"])
        b.prompt.tools(lambda context: contributed[0])
        first = await b.prompt.assemble(key)
        assert await b.prompt.assemble(key) is first
        assert render_prompt(first) == "1\n\ns"
        for what in said:
            said[what] += "!"
            assert await b.prompt.assemble(key) is not first
            first = await b.prompt.assemble(key)
        assert render_prompt(first) == "1!\n\ns!"
        assert [each.text for each in first.contexts] == ["c!"]
        contributed[0] = ToolsContribution(schemas=[ToolSchema("b", "B.", {})])
        assert [each.name for each in (await b.prompt.assemble(key)).tools] == ["b"]
        remove = b.prompt.section("t", 2, "t")
        assert await b.text(key) == "1!\n\ns!\n\nt"
        remove()
        assert await b.text(key) == "1!\n\ns!"
        given = await b.prompt.assemble(key, variables={"x": "given"})
        assert render_prompt(given) == "given\n\ns!"


async def test_T113_nobody_can_change_an_assembly_that_serves_again() -> None:
    async with bench() as b:
        b.prompt.variable("x", "1")
        assembly = await b.prompt.assemble(None)
        for mapping in (assembly.variables, assembly.section_owners, assembly.tool_owners):
            with pytest.raises(TypeError):
                mapping["x"] = "2"  # type: ignore[index]  # read-only, on purpose


async def test_T107_a_scope_that_moves_sees_what_stands_above_it_then() -> None:
    async with bench() as b:
        above, other, key = Key(), Key(), Key()
        b.scope(above).section("s", 1, "above")
        b.scope(other).section("s", 1, "other")
        binding = bind_scope_parent(key, above)
        assert await b.text(key) == "above"
        binding.move(other)
        assert await b.text(key) == "other"
        binding.move(None)
        assert await b.text(key) == ""


async def test_what_is_kept_for_a_scope_goes_with_it() -> None:
    async with bench() as b:
        made: list[object] = []
        table = WatchedTable[str](duplicate=RuntimeError)

        def make(scope: object | None) -> int:
            made.append(1)
            return len(made)

        cache = ScopeCache(make, [table])
        key, plain = Key(), Key()
        scope = create_scope(b.owner, key)
        odd = create_scope(b.owner, 7)
        assert [cache.get(key), cache.get(plain), cache.get(7), cache.get(None)] == [1, 1, 1, 1]
        for each in (scope, odd):
            table.set(each.ctx, "x", "its own")
        cache.clear()
        assert [cache.get(key), cache.get(key), cache.get(plain), cache.get(None)] == [2, 2, 3, 3]
        assert [cache.get(7), cache.get(7)] == [4, 5]  # no weak reference to numbers
        gone = weakref.ref(key)
        await scope.dispose()
        del key, scope, each
        gc.collect()
        assert gone() is None


async def test_T111_all_tool_providers_contribute() -> None:
    async with bench() as b:
        key = object()
        schema = ToolSchema("a", "A.", {})

        def provide(context: AssemblyContext) -> ToolsContribution:
            return ToolsContribution(schemas=[schema])

        b.prompt.tools(provide)
        b.scope(key).tools(provide)
        assert (await b.prompt.assemble(key)).tools == (schema, schema)


async def test_T112_T119_unknown_names_in_the_order_fail_the_assembly() -> None:
    order = Config(tool_order=("gone", "<unlisted-tools>"))
    async with bench(order) as b:
        with pytest.raises(ToolOrderError, match="gone"):
            await b.prompt.assemble(None)


async def test_T113_the_answer_of_the_waterfall_is_final() -> None:
    async with bench() as b:
        key = object()
        seen: list[object] = []

        async def rewrite(
            event: SystemPromptAssemble, next_: Next[PromptAssembly]
        ) -> PromptAssembly:
            seen.append(event.context.scope)
            assembly = await next_()
            added = PromptSection(name="z", order=-5, text="last in spite of its order")
            return msgspec.structs.replace(assembly, sections=(*assembly.sections, added))

        prompt = b.scope(key)
        prompt.ctx.on(SystemPromptAssemble, rewrite)
        b.prompt.section("a", 1, "first")
        assert await b.text(key) == "first\n\nlast in spite of its order"
        assert await b.text() == "first"
        assert seen == [key]


async def test_T114_a_complete_section_is_the_whole_prompt() -> None:
    async with bench() as b:
        ran: list[str] = []

        def other(context: AssemblyContext) -> str:
            ran.append("other")
            return "other"

        async def meddle(
            event: SystemPromptAssemble, next_: Next[PromptAssembly]
        ) -> PromptAssembly:
            assembly = await next_()
            changed = tuple(
                msgspec.structs.replace(section, text="changed") for section in assembly.sections
            )
            return msgspec.structs.replace(assembly, sections=changed)

        b.ctx.on(SystemPromptAssemble, meddle)
        b.prompt.section("other", 1, other)
        handle = b.prompt.section("whole", 2, "all of it", complete=True)
        assert await b.text() == "all of it"
        assert ran == ["other"]
        b.prompt.section("rival", 3, "no", complete=True)
        with pytest.raises(CompletePromptError, match=r"'whole', 'rival'"):
            await b.prompt.assemble(None)
        assert ran == ["other"]
        handle()
        assert await b.text() == "no"


async def test_T115_suppressed_contexts_are_neither_asked_nor_added() -> None:
    async with bench() as b:
        ran: list[str] = []
        key = object()

        def fact(context: AssemblyContext) -> str:
            ran.append("fact")
            return "a fact"

        async def add(event: SystemPromptAssemble, next_: Next[PromptAssembly]) -> PromptAssembly:
            extra = PromptContext(name="x", order=1, text="added")
            return msgspec.structs.replace(await next_(), contexts=(extra,))

        b.prompt.context("fact", 1, fact)
        b.scope(key).suppress_runtime_context()
        b.ctx.on(SystemPromptAssemble, add)
        assert (await b.prompt.assemble(key)).contexts == ()
        assert ran == []
        assert [c.name for c in (await b.prompt.assemble(None)).contexts] == ["x"]
        assert ran == ["fact"]
    async with bench(Config(include_runtime_context=False)) as b:
        b.prompt.context("fact", 1, fact)
        assert (await b.prompt.assemble(None)).contexts == ()
        assert ran == ["fact"]


async def test_T116_T117_only_sections_of_the_result_are_interpolated() -> None:
    async with bench() as b:
        b.prompt.section("raw", 1, "{{not_a_variable}}", interpolate=False)
        assert await b.text() == "{{not_a_variable}}"
        handle = b.prompt.section("bad", 2, "{{nobody}}")
        with pytest.raises(UnknownVariableError, match="'bad'"):
            await b.text()
        handle()
        b.prompt.section("empty", 0, "")
        b.prompt.section("last", 3, "end")
        assert await b.text() == "{{not_a_variable}}\n\nend"


async def test_T118_contexts_become_one_snapshot_message() -> None:
    async with bench() as b:
        assert runtime_context_message(await b.prompt.assemble(None)) is None
        b.prompt.context("b", 2, "the date")
        b.prompt.context("a", 1, lambda context: "the folder")
        b.prompt.context("c", 3, lambda context: None)
        assembly = await b.prompt.assemble(None)
        message = runtime_context_message(assembly)
        assert message is not None
        assert message_text(message) == f"{texts.CONTEXT_HEADING}\n\nthe folder\n\nthe date"
        assert message.role == "user"
        assert message.source == RuntimeContextSource(
            form="snapshot",
            sections=(SnapshotSection("a", "the folder"), SnapshotSection("b", "the date")),
        )
        rendered = render_contexts(assembly)
        assert rendered is not None
        assert rendered.text == message_text(message)
        cleared = cleared_context_message()
        assert (message_text(cleared), cleared.source) == (
            texts.CONTEXT_CLEARED,
            RuntimeContextSource(),
        )


def test_texts_for_the_model_change_on_purpose_only() -> None:
    assert texts.IDENTITY == (
        "You are an agent running on DeepSeek Harness. You work through the tools you are given, "
        "and what you write reaches the person you work for."
    )
    assert texts.CONTEXT_HEADING == (
        "Current facts of this session. They replace all facts given in this way earlier."
    )
    assert texts.CONTEXT_CLEARED == (
        "The facts of this session that were given earlier no longer apply, and there are no new "
        "ones."
    )


async def test_configuration_is_checked_although_its_model_is_loaded_late() -> None:
    async with Context() as ctx:
        with pytest.raises(ConfigError) as caught:
            await ctx.plugin(SystemPrompt, {"persona": 3, "tool_order": ["a"]})
        assert {path for path, _ in caught.value.problems} == {"persona", "tool_order"}
        await ctx.plugin(SystemPrompt, {"persona": "Be brief.", "include_harness_identity": False})
        assert render_prompt(await ctx.system_prompt.assemble(None)) == "Be brief."


def test_importing_loads_no_pydantic() -> None:
    code = "import sys, dsh_system_prompt; print('pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
