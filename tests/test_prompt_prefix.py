"""The part of requests that providers cache: the same for the same composition, explained if not."""

import subprocess
import sys

import anyio
import pytest

from dsh_agent_loop.testing import LoopStack, loop_stack, say
from dsh_brand import encode
from dsh_cordis import Context
from dsh_session import RequestHeaderEvent, SystemMessageEvent
from dsh_system_prompt import (
    PrefixChange,
    PromptAssembly,
    PromptSection,
    SystemPrompt,
    compare_prefixes,
    prefix_of,
)
from dsh_tools import ToolRegistry, prefix_report, tool
from dsh_tools.prefix_report import PrefixEntry

COMPOSITION = """
import hashlib, random, sys
import anyio
import dsh_approval, dsh_fs, dsh_todo, dsh_tool_timeout
from dsh_brand import encode
from dsh_spine import SpineContext, spine
from dsh_system_prompt import render_prompt
from dsh_tools import tool

PLUGINS = [
    (dsh_fs, {"root": "."}),
    (dsh_todo, {"allow_parallel_in_progress": False}),
    (dsh_approval, {}),
    (dsh_tool_timeout, None),
]
NAMES = ["one", "two", "three", "Four", "_five", "six"]


def own_tool(name):
    @tool(name=name, description=f"Do {name}.")
    async def run(text: str) -> str:
        return text

    return lambda ctx: ctx.tools.register(run)


async def main():
    shuffle = random.Random(int(sys.argv[1])).shuffle
    shuffle(PLUGINS)
    shuffle(NAMES)
    async with SpineContext() as ctx:
        for plugin, config in PLUGINS[:2]:
            ctx.plugin(plugin, config)
        ctx.plugin(spine)
        for plugin, config in PLUGINS[2:]:
            ctx.plugin(plugin, config)
        await ctx.settled()
        for name in NAMES:
            ctx.inject(["tools"], own_tool(name))
        await ctx.settled()
        assembly = await ctx.system_prompt.assemble(None)
        assert {"edit", "read", "todo_write", "write"} <= {each.name for each in assembly.tools}
        prefix = render_prompt(assembly).encode() + b"".join(map(encode, assembly.tools))
        print(len(prefix), hashlib.sha256(prefix).hexdigest())


anyio.run(main)
"""


def test_the_prefix_is_the_same_bytes_across_restarts_and_mount_orders() -> None:
    prefixes = {
        subprocess.run(
            [sys.executable, "-c", COMPOSITION, str(seed)],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={"PYTHONHASHSEED": str(seed), "PYTHONUTF8": "1"},
        ).stdout
        for seed in range(4)
    }
    assert len(prefixes) == 1
    assert int(next(iter(prefixes)).split()[0]) > 1000


@tool
async def weed() -> str:
    """Pull out weeds."""
    return "done"


class Needs(Context):
    tools: ToolRegistry
    system_prompt: SystemPrompt


def gardener(ctx: Needs) -> None:
    ctx.tools.register(weed)


def rules(ctx: Needs, text: str) -> None:
    ctx.system_prompt.section("rules", 100, text)


def entries(stack: LoopStack) -> tuple[PrefixEntry, ...]:
    found: tuple[PrefixEntry, ...] = stack.ctx.prefix_report.of(stack.agent.session)
    return found


def types_at(stack: LoopStack, found: tuple[PrefixEntry, ...]) -> list[str]:
    return [stack.agent.session.event_at(entry.seq).type for entry in found]


async def test_the_report_names_who_changed_the_prefix_and_when() -> None:
    async with loop_stack(before=lambda ctx: ctx.plugin(prefix_report)) as stack:
        await stack.run("one")
        await stack.run("two")
        assert entries(stack) == ()
        with anyio.fail_after(5):
            await stack.ctx.plugin(gardener)
        await stack.run("three")
        [entry] = found = entries(stack)
        added = PrefixChange(what="tool", name="weed", change="added", owner="gardener")
        assert entry.changes == (added,)
        assert entry.time == stack.agent.session.event_at(entry.seq).time
        assert types_at(stack, found) == ["request/header"]
        fiber = stack.ctx.plugin(rules, "Water before noon.")
        await fiber
        await stack.run("four")
        await fiber.dispose()
        await stack.ctx.unplug(gardener)
        await stack.run("five")
        assert [
            (c.what, c.name, c.change, c.owner) for e in entries(stack)[1:] for c in e.changes
        ] == [
            ("section", "rules", "added", "rules"),
            ("section", "rules", "removed", "rules"),
            ("tool", "weed", "removed", "gardener"),
        ]


async def test_the_report_says_nothing_about_agents_whose_prefix_stays() -> None:
    async with loop_stack(before=lambda ctx: ctx.plugin(prefix_report)) as stack:
        await stack.run("one")
        other = await stack.ctx.agents.create(provider="test", model="m")
        other.agent.ctx.tools.register(weed)
        await stack.run("two")
        assert entries(stack) == ()


async def test_a_section_that_is_the_whole_prompt_is_reported_as_that() -> None:
    async with loop_stack(
        before=lambda ctx: ctx.plugin(prefix_report), prompt={"persona": "Be brief."}
    ) as stack:
        await stack.run("one")

        def whole(ctx: Needs) -> None:
            ctx.system_prompt.section("whole", 1, "Only this.", complete=True)

        await stack.ctx.plugin(whole)
        await stack.run("two")
        [entry] = entries(stack)
        assert ("(the whole prompt)", "added") in [(c.name, c.change) for c in entry.changes]


def assembly(*sections: tuple[str, str], persona: str = "x") -> PromptAssembly:
    return PromptAssembly(
        sections=tuple(
            PromptSection(name=name, order=index, text=text)
            for index, (name, text) in enumerate(sections)
        ),
        variables={"persona": persona},
        section_owners={name: f"owner of {name}" for name, _ in sections},
    )


@pytest.mark.parametrize(
    ("before", "after", "changes"),
    [
        pytest.param([("a", "1")], [("a", "1")], [], id="same"),
        pytest.param([("a", "1")], [("a", "2")], [("a", "changed")], id="changed"),
        pytest.param([("a", "1")], [("b", "1")], [("a", "removed"), ("b", "added")], id="renamed"),
        pytest.param(
            [("a", "1"), ("b", "2")],
            [("b", "2"), ("a", "1")],
            [("b", "moved"), ("a", "moved")],
            id="moved",
        ),
        pytest.param([("a", "1"), ("b", "")], [("a", "1")], [], id="empty-sections-are-none"),
    ],
)
def test_prefixes_are_compared_by_section(
    before: list[tuple[str, str]], after: list[tuple[str, str]], changes: list[tuple[str, str]]
) -> None:
    found = compare_prefixes(prefix_of(assembly(*before)), prefix_of(assembly(*after)))
    assert [(each.name, each.change) for each in found] == changes
    assert all(each.owner == f"owner of {each.name}" for each in found)


def test_a_variable_that_changes_changes_its_section() -> None:
    before = prefix_of(assembly(("a", "Hello {{persona}}"), persona="x"))
    after = prefix_of(assembly(("a", "Hello {{persona}}"), persona="y"))
    [change] = compare_prefixes(before, after)
    assert (change.name, change.change, change.variables) == ("a", "changed", ("persona",))
    rewritten = prefix_of(assembly(("a", "Hi {{persona}}"), persona="x"))
    [change] = compare_prefixes(before, rewritten)
    assert (change.change, change.variables) == ("changed", ())


async def test_the_report_names_the_variable_that_changed_a_section() -> None:
    async with loop_stack(
        before=lambda ctx: ctx.plugin(prefix_report), prompt={"persona": "It is {{hour}}."}
    ) as stack:
        hours = iter(("ten", "ten", "eleven"))
        stack.ctx.system_prompt.variable("hour", lambda context: next(hours))
        for text in ("one", "two", "three"):
            await stack.run(text)
        [entry] = entries(stack)
        [change] = entry.changes
        assert (change.name, change.change) == ("deployment:persona", "changed")
        assert change.variables == ("hour",)


async def test_what_is_compared_is_what_is_sent() -> None:
    async with loop_stack(say("ok"), prompt={"persona": "Be brief."}) as stack:
        stack.ctx.tools.register(weed)
        await stack.run("one")
        prefix = prefix_of(await stack.ctx.system_prompt.assemble(stack.agent, agent=stack.agent))
        data = [event.data for event in stack.agent.session.events]
        [header] = [each.header for each in data if isinstance(each, RequestHeaderEvent)]
        [system] = [each.message for each in data if isinstance(each, SystemMessageEvent)]
        assert [encode(each) for each in header.tools or ()] == list(prefix.tools.values())
        assert b"Be brief." in b"".join(prefix.sections.values())
        assert b"Be brief." in encode(system)
