"""Tool changes as a route gets them (L174), and the order of the copies made for it (L172)."""

from collections.abc import AsyncIterator, Sequence

import anyio
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_brand import JsonValue, freeze_object
from dsh_cordis import Context
from dsh_llm import (
    GenerateOptions,
    LlmResolvedModelInfo,
    LlmService,
    Message,
    MessageId,
    ModelSource,
    OpaqueBlock,
    ReplayEnvelope,
    RequestMessage,
    TextBlock,
    ToolAdditionBlock,
    ToolHistory,
    ToolRegistrySource,
    ToolRemovalBlock,
    ToolSchema,
    ToolUpdate,
    ToolUpdateMode,
    create_assistant_message,
    create_developer_message,
    create_user_message,
    project_tool_updates,
)
from dsh_llm.testing import FakeAdapter


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    async with Context() as root:
        yield root


def schema(name: str, defer: bool | None = None) -> ToolSchema:
    return ToolSchema(name, f"does {name}", {"type": "object"}, defer)


A, B, C = schema("a"), schema("b"), schema("c")
USER = create_user_message("hi")


def told(*changes: str) -> Message:
    """A developer message: `+a` adds, `-a` removes, anything else is text."""
    blocks = {"+": ToolAdditionBlock, "-": ToolRemovalBlock}
    content = [
        blocks[change[0]](change[1:]) if change[0] in blocks else TextBlock(change)
        for change in changes
    ]
    return create_developer_message(content, ToolRegistrySource())


def history(tools: Sequence[ToolSchema], *updates: tuple[Message, list[ToolSchema]]) -> ToolHistory:
    changes = [ToolUpdate(message.id, tuple(added)) for message, added in updates]
    return ToolHistory(tuple(tools), tuple(changes))


def shown(messages: Sequence[RequestMessage]) -> list[str]:
    """The developer blocks that are left, in the notation of `told`."""
    signs = {"tool-addition": "+", "tool-removal": "-"}
    return [
        f"{signs[block.type]}{block.tool_name}"
        if isinstance(block, ToolAdditionBlock | ToolRemovalBlock)
        else block.type
        for message in messages
        if message.role == "developer"
        for block in message.content
    ]


def test_L174_without_a_mode_changes_and_marks_are_left_out() -> None:
    change = told("+b")
    deferred = schema("b", True)
    messages, tools = project_tool_updates(
        [USER, change], [A, deferred], None, history([A], (change, [B]))
    )
    assert list(messages) == [USER]
    assert messages[0] is USER
    assert tools == (A, B)


def test_L174_what_needs_no_change_comes_back_itself() -> None:
    messages, tools = [USER], [A, B]
    for mode in (None, "in-history"):
        same, kept = project_tool_updates(messages, tools, mode, None)
        assert same is messages
        assert kept is tools
    change = told("+c")
    kept_messages, _ = project_tool_updates(
        [USER, change], [A, C], "in-history", history([A], (change, [C]))
    )
    assert kept_messages == [USER, change]
    assert kept_messages[1] is change


@pytest.mark.parametrize("known", [False, True], ids=["no history", "its message is missing"])
def test_L174_a_history_that_does_not_fit_leaves_the_tools_as_given(known: bool) -> None:
    absent, present = told("+b"), told("+c")
    given = [A, schema("b", True)]
    messages, tools = project_tool_updates(
        [USER, present], given, "in-history", history([A], (absent, [B])) if known else None
    )
    assert list(messages) == [USER]
    assert tools is given


def test_L174_additions_are_declared_behind_the_baseline_and_deferred() -> None:
    first, second = told("+b"), told("+c", "+b")
    messages, tools = project_tool_updates(
        [USER, first, second],
        [A, B, C],
        "in-history",
        history([A], (first, [B]), (second, [C, B])),
    )
    assert tools == (A, schema("b", True), schema("c", True))
    assert shown(messages) == ["+b", "+c"]


@pytest.mark.parametrize(
    ("mode", "declared", "blocks"),
    [
        pytest.param("in-history", ["a", "b"], ["+b", "-b", "-a", "text", "+b"], id="in-history"),
        pytest.param("addition-only", ["b"], ["+b", "text"], id="addition-only"),
    ],
)
def test_L174_removals_are_told_only_where_they_can_be(
    mode: ToolUpdateMode, declared: list[str], blocks: list[str]
) -> None:
    one, two, three = told("+b", "+a"), told("-b", "-a", "-x", "why"), told("+b")
    updates = history([A], (one, [B]), (two, []), (three, [B]))
    messages, tools = project_tool_updates([one, two, three], [B], mode, updates)
    assert [tool.name for tool in tools or ()] == declared
    assert shown(messages) == blocks


def test_L174_uncited_and_emptied_messages_are_left_out() -> None:
    cited, uncited, again = told("+b"), told("+c"), told("+b")
    messages, _ = project_tool_updates(
        [cited, uncited, again, USER], [A, B], "in-history", history([A], (cited, [B]), (again, []))
    )
    assert [message.id for message in messages if isinstance(message, Message)] == [
        cited.id,
        USER.id,
    ]


def test_L174_a_deferred_tool_of_the_baseline_is_not_offered_from_the_start() -> None:
    change = told("+a")
    messages, _ = project_tool_updates(
        [change], [A], "in-history", history([schema("a", True)], (change, []))
    )
    assert shown(messages) == ["+a"]


async def test_L172_the_copies_are_made_in_order_and_only_where_something_changes(
    ctx: Context,
) -> None:
    adapter = FakeAdapter()
    adapter.info = LlmResolvedModelInfo("r", "m", "m", input_modalities=("text", "image"))
    await ctx.plugin(LlmService)
    llm = ctx.get(LlmService)
    assert llm is not None
    llm.register_adapter(["r"], adapter)
    kept = OpaqueBlock(extra=freeze_object({"type": "image", "attachment": {"sha": "1" * 64}}))
    gone = OpaqueBlock(
        extra=freeze_object({"type": "image", "attachment": {"sha": "ab" * 32}, "offloaded": True})
    )
    foreign = ModelSource(provider="other", model="m", replay_state=ReplayEnvelope({"s": 1}))
    messages = [
        create_user_message([kept, gone]),
        told("+b"),
        create_assistant_message([TextBlock("x")], foreign),
        USER,
    ]
    options = GenerateOptions(provider="r", model="m", messages=messages, tools=[schema("a", True)])
    with anyio.fail_after(5):
        async for _ in llm.stream(options):
            pass
    [request] = adapter.requests
    with_image, answer, user = request.messages
    assert with_image.content[0] is kept
    assert with_image.content[1] == TextBlock(
        "[image sha256:abababab: taken out to make room, and not sent again]"
    )
    assert isinstance(answer, Message)
    assert answer.source == ModelSource(provider="other", model="m")
    assert user is USER
    assert request.tools == (A,)
    assert options.messages == tuple(messages)


def test_L174_a_message_keeps_its_id_when_it_loses_blocks() -> None:
    change = msgspec.structs.replace(told("-a", "note"), id=MessageId("d1"))
    messages, _ = project_tool_updates([change], [A], "addition-only", history([A], (change, [])))
    assert messages == (msgspec.structs.replace(change, content=(TextBlock("note"),)),)


NAMES = st.sampled_from("abcd")
CHANGES = st.lists(
    st.tuples(st.lists(st.tuples(st.sampled_from("+-"), NAMES), max_size=4), st.booleans()),
    max_size=5,
)


@given(
    baseline=st.sets(NAMES), changes=CHANGES, mode=st.sampled_from(["addition-only", "in-history"])
)
def test_L174_what_is_told_agrees_with_what_is_declared(
    baseline: set[str], changes: list[tuple[list[tuple[str, str]], bool]], mode: ToolUpdateMode
) -> None:
    present = set(baseline)
    messages: list[RequestMessage] = []
    updates = []
    for blocks, cited in changes:
        message = told(*(sign + name for sign, name in blocks), "text")
        messages += [message, USER]
        if cited:
            updates.append((message, [schema(name) for sign, name in blocks if sign == "+"]))
            for sign, name in blocks:
                present = present | {name} if sign == "+" else present - {name}
    tools = [schema(name) for name in sorted(present)]
    known = history([schema(name) for name in sorted(baseline)], *updates)
    seen, declared = project_tool_updates(messages, tools, mode, known)

    offered = {tool.name for tool in declared or () if not tool.defer_loading}
    names = {tool.name for tool in declared or ()}
    for block in shown(seen):
        if block.startswith("+"):
            assert block[1:] in names - offered
            offered.add(block[1:])
        elif block.startswith("-"):
            assert mode == "in-history"
            offered.remove(block[1:])
    # What the model may call in the end is what is there.
    assert offered == present
    again, declared_again = project_tool_updates(seen, declared, mode, known)
    assert (list(again), list(declared_again or ())) == (list(seen), list(declared or ()))


@pytest.mark.parametrize(
    ("attachment", "expected"),
    [
        pytest.param(
            {"name": "plan.pdf", "size": 1200, "readPath": "/srv/plan.pdf"},
            "[file 'plan.pdf', 1200 bytes: its content is not in this message; "
            "read it at '/srv/plan.pdf']",
            id="readable",
        ),
        pytest.param(
            {"sha256": "ab" * 32},
            "[file sha256:abababab: its content is not in this message, "
            "and there is no path to read it at]",
            id="nothing known",
        ),
    ],
)
async def test_L166_a_file_reaches_no_adapter(
    ctx: Context, attachment: dict[str, JsonValue], expected: str
) -> None:
    adapter = FakeAdapter()
    await ctx.plugin(LlmService)
    llm = ctx.get(LlmService)
    assert llm is not None
    llm.register_adapter(["r"], adapter)
    block = OpaqueBlock(extra=freeze_object({"type": "file", "attachment": attachment}))
    message = create_user_message([TextBlock("see"), block])
    options = GenerateOptions(provider="r", model="m", messages=[message])
    with anyio.fail_after(5):
        async for _ in llm.stream(options):
            pass
    [sent] = adapter.requests[0].messages
    assert sent.content == (TextBlock("see"), TextBlock(expected))
    assert message.content[1] is block
