"""Messages, blocks and sources."""

from typing import cast

import pytest

from dsh_brand import FrozenDict, JsonValue, decode, encode, freeze_object, from_json, to_json
from dsh_llm import (
    Block,
    CallId,
    Message,
    MessageError,
    MessageSource,
    ModelSource,
    OpaqueBlock,
    OpaqueSource,
    ProducerSource,
    ReplayEnvelope,
    RuntimeContextSource,
    SnapshotSection,
    SystemPromptSource,
    TextBlock,
    ToolCallBlock,
    ToolSource,
    UserSource,
    bound_context_summary,
    create_assistant_message,
    create_developer_message,
    create_message,
    create_system_message,
    create_tool_result_message,
    create_user_message,
    freeze_message,
    message_text,
    register_block,
    source_form,
)

MODEL = ModelSource("p", "m")


def test_L1_absent_fields_are_omitted_and_null_reads_as_absent() -> None:
    message = create_user_message("hi")
    assert set(cast("dict[str, JsonValue]", to_json(message))) == {
        "id",
        "role",
        "content",
        "source",
    }
    read = from_json(
        Message,
        {
            "id": "a",
            "role": "tool",
            "content": [],
            "source": {"kind": "tool", "callId": "c"},
            "toolCallId": "c",
            "isError": None,
        },
    )
    assert read.is_error is None
    assert b"isError" not in encode(read)


def test_L2_unknown_tags_survive_with_their_key_order() -> None:
    text = (
        b'{"id":"a","role":"user","content":[{"z":1,"type":"hologram","a":{"y":[null,1.5]}}],'
        b'"source":{"zeta":true,"kind":"goal","alpha":[]}}'
    )
    message = decode(Message, text)
    block, source = message.content[0], message.source
    assert isinstance(block, OpaqueBlock)
    assert isinstance(source, OpaqueSource)
    assert (block.type, source.kind) == ("hologram", "goal")
    assert encode(message) == text


def test_L2_a_registered_block_is_read_as_its_class() -> None:
    @register_block
    class Sketch(Block, frozen=True, tag="test-sketch"):
        strokes: int

    message = decode(
        Message,
        b'{"id":"a","role":"user","content":[{"type":"test-sketch","strokes":3}],'
        b'"source":{"kind":"user"}}',
    )
    assert message.content == (Sketch(3),)


def test_L3_values_are_immutable_and_detached() -> None:
    blocks: list[Block] = [TextBlock("a")]
    message = create_user_message(blocks)
    blocks.append(TextBlock("b"))
    assert message.content == (TextBlock("a"),)
    with pytest.raises(AttributeError):
        message.role = "tool"  # type: ignore[misc]  # the assignment is what the test forbids
    response: dict[str, JsonValue] = {"id": [1]}
    envelope = ReplayEnvelope(response)
    cast("list[int]", response["id"]).append(2)
    assert envelope.response == {"id": [1]}
    assert isinstance(envelope.response, FrozenDict)


def test_L4_created_messages_can_be_encoded() -> None:
    message = create_user_message("a\ud83d\ude00\ud83d")
    assert message_text(message) == "a😀\ufffd"


def test_L4_S26_a_loaded_lone_half_is_kept() -> None:
    text = (
        b'{"id":"a","role":"user","content":[{"type":"text","text":"\\ud83d"}],'
        b'"source":{"kind":"user"}}'
    )
    message = decode(Message, text)
    assert message_text(message) == "\ud83d"
    assert encode(message) == text


def test_L7_a_sixth_role_is_refused() -> None:
    with pytest.raises(ValueError, match="role"):
        from_json(Message, {"id": "a", "role": "critic", "content": [], "source": {"kind": "user"}})


def test_L8_constructors_mint_ids_and_fill_the_source() -> None:
    first, second = create_user_message("hi"), create_user_message("hi")
    assert first.id != second.id
    assert first.content == (TextBlock("hi"),)
    assert first.source == UserSource()
    with pytest.raises(MessageError, match="at least one block"):
        create_user_message([])
    with pytest.raises(TypeError):
        create_user_message("hi", id="mine")  # type: ignore[call-arg]  # what the test forbids


def test_L8_freeze_message_keeps_the_id() -> None:
    message = freeze_message(
        {
            "id": "kept",
            "role": "user",
            "content": [{"type": "text", "text": "x"}],
            "source": {"kind": "user"},
        }
    )
    assert message.id == "kept"
    assert freeze_message(message) is message


def test_L9_each_constructor_fixes_role_and_source() -> None:
    assistant = create_assistant_message([ToolCallBlock(CallId("c"), "ls", "{}")], MODEL)
    assert (assistant.role, assistant.source) == ("assistant", MODEL)
    result = create_tool_result_message(CallId("c"), [TextBlock("ok")], False)
    assert cast("dict[str, JsonValue]", to_json(result)) | {"id": ""} == {
        "id": "",
        "role": "tool",
        "content": [{"type": "text", "text": "ok"}],
        "source": {"kind": "tool", "callId": "c"},
        "toolCallId": "c",
        "isError": False,
    }
    assert create_system_message("p").content == (TextBlock("p"),)
    assert create_system_message("").content == ()
    assert create_system_message("").source == SystemPromptSource()
    assert create_developer_message([TextBlock("t")], ProducerSource()).role == "developer"


@pytest.mark.parametrize(
    ("role", "source"),
    [
        pytest.param("user", MODEL, id="model-on-user"),
        pytest.param("user", ToolSource(CallId("c")), id="tool-on-user"),
        pytest.param("developer", SystemPromptSource(), id="prompt-on-developer"),
        pytest.param("assistant", UserSource(), id="user-on-assistant"),
        pytest.param("system", UserSource(), id="user-on-system"),
        pytest.param("tool", UserSource(), id="user-on-tool"),
        pytest.param("tool", ToolSource(CallId("other")), id="tool-of-another-call"),
        pytest.param(
            "user",
            OpaqueSource(extra=freeze_object({"kind": "plugin", "plugin": "x"})),
            id="retired-kind",
        ),
    ],
)
def test_L10_a_source_that_does_not_fit_is_refused(role: str, source: MessageSource) -> None:
    with pytest.raises(MessageError):
        create_message(
            role,  # type: ignore[arg-type]  # any role of the parameters
            [TextBlock("x")],
            source,
            tool_call_id=CallId("c"),
        )


def test_L11_forms_need_what_they_show() -> None:
    with pytest.raises(MessageError, match="sections"):
        create_user_message("x", RuntimeContextSource(form="snapshot"))
    with pytest.raises(MessageError, match="summary"):
        create_user_message("x", RuntimeContextSource(form="notice"))
    snapshot = RuntimeContextSource(form="snapshot", sections=(SnapshotSection("a", "b"),))
    assert create_user_message("x", snapshot).source == snapshot
    assert source_form(snapshot) == "snapshot"


def test_L11_an_unknown_form_is_kept_and_counts_as_undeclared() -> None:
    text = b'{"kind":"runtime-context","form":"opera"}'
    source = decode(RuntimeContextSource, text)
    assert source_form(source) is None
    assert encode(source) == text


def test_L12_a_summary_is_bounded() -> None:
    assert bound_context_summary("x" * 120) == "x" * 120
    assert bound_context_summary("x" * 121) == "x" * 119 + "…"


def test_L13_arguments_are_never_reformatted() -> None:
    block = ToolCallBlock(CallId("c"), "ls", ' {"a" :1}')
    assert decode(ToolCallBlock, encode(block)).arguments == ' {"a" :1}'
