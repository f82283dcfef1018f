"""The spill store and the policy that uses it."""

from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_brand import utf16_len
from dsh_cordis import Context, Next
from dsh_llm import TextBlock, estimate_block
from dsh_shell import SpillError, SpillStore
from dsh_shell.spill_policy import ends_of, spill_policy
from dsh_tools import (
    Accept,
    Block,
    PostToolDecision,
    ToolExecutionResult,
    ToolsPostExecute,
    ToolToken,
    tool,
)
from dsh_tools.testing import ToolBench, text_of, tool_bench


async def open_store(ctx: Context, root: Path) -> SpillStore:
    await ctx.plugin(SpillStore, root)
    return cast("SpillStore", ctx.spill_store)


async def test_C61_a_saved_text_is_private_and_bounded_to_its_owner(tmp_path: Path) -> None:
    async with Context() as ctx:
        store = await open_store(ctx, tmp_path / "spill")
        one = await store.save_text("session-a", "bash", "out", "\u20acuro")
        two = await store.save_text("session-a", "bash", "out", "\u20acuro")
        other = await store.save_text("session-b", "bash", "out", "x")
    assert one.bytes == 6
    assert one.locator in one.retrieval_hint
    paths = [Path(saved.locator) for saved in (one, two, other)]
    assert paths[0].read_text("utf-8") == "\u20acuro"
    assert len({path.name for path in paths}) == 3
    assert paths[0].parent == paths[1].parent != paths[2].parent
    assert paths[0].parent.name.startswith("session-")
    for path in paths:
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert path.parent.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/abs", "a\0b", "..", "", "\u202egpj", "x" * 5000, "a\nb", "-rf"]
)
async def test_C115_names_are_reduced_to_safe_ones(tmp_path: Path, name: str) -> None:
    async with Context() as ctx:
        store = await open_store(ctx, tmp_path / "s")
        saved = await store.save_text(name, name, name, "x")
    path = Path(saved.locator)
    assert path.parent.parent == tmp_path / "s"
    assert path.name.isascii()
    assert len(path.name) < 120
    assert not set(path.name) & set("/\0\n ")


async def test_C61_a_place_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path)
    for root in (tmp_path / "file", tmp_path / "link"):
        async with Context() as ctx:
            store = await open_store(ctx, root)
            with pytest.raises(SpillError) as caught:
                await store.save_text("a", "b", "c", "x")
        assert caught.value.code == "SPILL_FAILED"


# ---- the policy -----------------------------------------------------------------------------


@tool(name="long")
async def long_tool(text: str) -> str:
    """Say something.

    Args:
        text: What.
    """
    return text


@tool(name="read")
async def read_tool(text: str) -> str:
    """Read something.

    Args:
        text: What.
    """
    return text


LONG = "".join(f"line {number} \U0001f600\n" for number in range(1000))
BUDGET = 200


async def run_with_policy(
    root: Path,
    decision: PostToolDecision | None = None,
    *,
    name: str = "long",
    nested: bool = False,
) -> ToolExecutionResult:
    async with tool_bench(long_tool, read_tool) as bench:
        await open_store(bench.ctx, root)
        await bench.ctx.plugin(spill_policy, BUDGET)

        async def decide(
            event: ToolsPostExecute, next_: Next[PostToolDecision]
        ) -> PostToolDecision:
            return await next_() if decision is None else decision

        bench.ctx.on(ToolsPostExecute, decide)
        return await _call(bench, name, nested)


async def _call(bench: ToolBench, name: str, nested: bool) -> ToolExecutionResult:
    parent = ToolToken() if nested else None
    call = bench.call(name, {"text": LONG}, agent=bench.agent(), parent=parent)
    return await bench.tools.execute(call)


async def test_C62_head_and_tail_and_a_file_fit_the_budget(tmp_path: Path) -> None:
    result = await run_with_policy(tmp_path / "s")
    text = text_of(result)
    assert estimate_block(TextBlock(text)) <= BUDGET
    head, tail = text.partition("\n[")[0], text.rpartition("]\n")[2]
    assert LONG.startswith(head)
    assert LONG.endswith(tail)
    assert abs(utf16_len(head) - utf16_len(tail)) <= 2
    (saved,) = (tmp_path / "s").rglob("*-long-*")
    assert saved.read_text("utf-8") == LONG
    assert str(saved) in text
    left_out = len(LONG.encode()) - len(head.encode()) - len(tail.encode())
    assert f"[{left_out} bytes left out" in text


@pytest.mark.parametrize(
    ("decision", "name", "nested"),
    [
        pytest.param(None, "read", False, id="read bounds itself"),
        pytest.param(None, "long", True, id="nested call"),
        pytest.param(Accept(value=LONG), "long", False, id="value replaced"),
        pytest.param(Block(LONG), "long", False, id="block"),
        pytest.param(Accept(content="short"), "long", False, id="short"),
    ],
)
async def test_C62_what_the_policy_leaves_alone(
    tmp_path: Path, decision: PostToolDecision | None, name: str, nested: bool
) -> None:
    result = await run_with_policy(tmp_path / "s", decision, name=name, nested=nested)
    assert "left out" not in text_of(result)
    assert not (tmp_path / "s").exists()


async def test_C62_content_that_policy_replaced_is_bounded_too(tmp_path: Path) -> None:
    result = await run_with_policy(tmp_path / "s", Accept(content=LONG + "!"))
    assert text_of(result).endswith("!")
    assert "left out" in text_of(result)


async def test_C62_where_saving_fails_the_original_stays(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert text_of(await run_with_policy(tmp_path / "file")) == LONG


@given(st.text(), st.integers(0, 30))
def test_C120_cuts_leave_whole_characters_that_can_be_encoded(text: str, units: int) -> None:
    head, tail = ends_of(text, units)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert utf16_len(head) <= units >= utf16_len(tail)
    head.encode()
    tail.encode()
