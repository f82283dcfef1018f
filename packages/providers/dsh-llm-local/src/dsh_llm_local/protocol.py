"""Tools for a model that was not taught to call any: each reply is one JSON object of a given form.

Either `{"tool": NAME, "arguments": {...}}` or `{"answer": TEXT}`. The server holds the model to
that form by a grammar, so that a call always parses and names a declared tool. What the history
says of calls and answers is shown in the same form.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from dsh_brand import JsonValue, decode_json, encode_json
from dsh_llm import (
    Block,
    CallId,
    GenerateOptions,
    Message,
    ReasoningBlock,
    RequestMessage,
    RequestUserInput,
    TextBlock,
    ToolCallBlock,
    ToolSchema,
    message_text,
)

INSTRUCTIONS = """\
Reply with one JSON object and nothing else. To use a tool:
{"tool": "<name>", "arguments": {...}}
To answer:
{"answer": "<text>"}

Tools:
"""

_NAMED = ("properties", "$defs", "definitions", "patternProperties")
"""Keywords whose keys are names, not keywords."""
_UNCHECKED = frozenset({"pattern", "format", "minLength", "maxLength", "minItems", "maxItems"})
"""What a grammar cannot hold, or only at great cost; whoever runs the tool checks it."""


def reply_format(tools: Sequence[ToolSchema]) -> dict[str, JsonValue]:
    """The `response_format` of a request that offers these tools."""
    forms: list[JsonValue] = [_form(answer={"type": "string"})]
    definitions: dict[str, JsonValue] = {}
    for place, tool in enumerate(tools):
        key = f"tool{place}"
        definitions[key] = _rebased(tool.parameters, f"#/$defs/{key}")
        forms.append(_form(tool={"const": tool.name}, arguments={"$ref": f"#/$defs/{key}"}))
    schema: dict[str, JsonValue] = {"anyOf": forms, "$defs": definitions}
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}


def in_reply_form(options: GenerateOptions) -> GenerateOptions:
    """The request without declared tools: these stand in the prompt, calls and answers as text."""
    tools = "\n".join(_described(tool) for tool in options.tools or ())
    parts = [options.system, INSTRUCTIONS + tools]
    return msgspec.structs.replace(
        options,
        system="\n\n".join(part for part in parts if part),
        messages=_messages(options.messages),
        tools=None,
    )


def _form(**properties: JsonValue) -> JsonValue:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _rebased(schema: JsonValue, root: str) -> JsonValue:
    """A schema that moved below `root`, without what a grammar cannot hold."""
    if isinstance(schema, Mapping):
        return {
            key: _rebased_names(value, root)
            if key in _NAMED
            else root + value[1:]
            if key == "$ref" and isinstance(value, str) and value.startswith("#")
            else _rebased(value, root)
            for key, value in schema.items()
            if key not in _UNCHECKED
        }
    if isinstance(schema, list | tuple):
        return [_rebased(item, root) for item in schema]
    return schema


def _rebased_names(value: JsonValue, root: str) -> JsonValue:
    if not isinstance(value, Mapping):
        return value
    return {name: _rebased(schema, root) for name, schema in value.items()}


def _described(tool: ToolSchema) -> str:
    return f"- {tool.name}: {tool.description}\n  arguments: {_json(tool.parameters)}"


def _messages(messages: Sequence[RequestMessage]) -> list[RequestMessage]:
    result: list[RequestMessage] = []
    names: dict[CallId, str] = {}
    outcomes: list[str] = []
    for message in messages:
        if isinstance(message, Message) and message.role == "tool":
            outcomes.append(_outcome(message, names))
            continue
        result += _told(outcomes)
        outcomes = []
        if isinstance(message, Message) and message.role == "assistant":
            names |= {b.id: b.name for b in message.content if isinstance(b, ToolCallBlock)}
            message = msgspec.structs.replace(message, content=_reply(message.content))
        result.append(message)
    return result + _told(outcomes)


def _told(outcomes: Sequence[str]) -> list[RequestMessage]:
    """The results of one step as one message of the user, whom every chat template knows."""
    if not outcomes:
        return []
    return [RequestUserInput(content=(TextBlock("\n\n".join(outcomes)),))]


def _outcome(message: Message, names: Mapping[CallId, str]) -> str:
    name = names.get(message.tool_call_id or CallId(""), "a tool")
    verdict = "failed" if message.is_error else "returned"
    return f"{name} {verdict}:\n{message_text(message)}"


def _reply(content: Iterable[Block]) -> tuple[Block, ...]:
    """An assistant's blocks, with its text and its calls in the form of replies."""
    thoughts = [block for block in content if isinstance(block, ReasoningBlock)]
    text = "".join(block.text for block in content if isinstance(block, TextBlock))
    lines = [_json({"answer": text})] if text else []
    lines += [_call(block) for block in content if isinstance(block, ToolCallBlock)]
    return (*thoughts, TextBlock("\n".join(lines)))


def _call(block: ToolCallBlock) -> str:
    try:
        return _json({"tool": block.name, "arguments": decode_json(block.arguments)})
    except ValueError:  # no JSON, or a number that none can write, such as 1e400
        return _json({"tool": block.name, "arguments": {}})


def _json(value: JsonValue) -> str:
    return encode_json(value).decode()
