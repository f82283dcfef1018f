"""Request bodies: bytes joined from fragments that are encoded once per message.

Upstream: packages/llm/llm-openai/src/request.ts.
"""

from collections.abc import Mapping, Sequence

from dsh_brand import JsonValue, encode_json, is_blank, scrub_surrogates
from dsh_llm import (
    GenerateOptions,
    ReasoningBlock,
    RequestMessage,
    ToolCallBlock,
    ToolSchema,
    leading_prompt,
    message_text,
)
from dsh_llm_http import ModelFacts
from dsh_llm_http.identity import GrowingHistory, IdentityCache
from dsh_llm_http.wire import (
    NO_OUTPUT,
    NameRule,
    body_of,
    check_effort,
    encoded,
    encoded_number,
    refuse_images,
)

from .routes import Route

_NAMES = NameRule(64)
_TOOLS_KEPT = 1024
_SKIPPED = b""


class BodyBuilder:
    """Builds the bodies of one route; equal requests give equal bytes."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._messages: IdentityCache[RequestMessage, bytes] = IdentityCache()
        self._grown: GrowingHistory[RequestMessage] = GrowingHistory()
        self._tools: dict[int, tuple[ToolSchema, bytes]] = {}

    def build(self, options: GenerateOptions) -> bytes:
        """The body of a request.

        Raises:
            LlmError: `UNSUPPORTED_OPTION`, `UNSUPPORTED_REASONING_EFFORT` or
                `UNSUPPORTED_CONTENT`: something the route cannot express.
        """
        route = self._route
        facts = route.model(options.model)
        fields = [b'"stream":true']
        if route.stream_usage:
            fields.append(b'"stream_options":{"include_usage":true}')
        fields += _thinking(options, route, facts)
        if options.tools:
            fields.append(b'"tools":[' + b",".join(map(self._tool, options.tools)) + b"]")
        if options.temperature is not None:
            fields.append(b'"temperature":' + encoded_number(options.temperature))
        if options.max_tokens is not None:
            fields.append(b'"%b":%d' % (route.max_tokens_field.encode(), options.max_tokens))
        if options.stop:
            fields.append(b'"stop":' + encoded(list(options.stop)))
        model = [b'"model":' + encoded(options.model)]
        return body_of(model, self._history(options, facts), fields)

    def _history(self, options: GenerateOptions, facts: ModelFacts) -> list[bytes]:
        prompt, rest = leading_prompt(
            options.messages, options.system, in_history=facts.system_prompt_in_history
        )
        role = self._route.system_role
        head = [encoded({"role": role, "content": prompt})] if prompt else []
        grown = self._grown.beginning(rest)
        new = rest[grown.count :]
        grown.extend(new, filter(None, self._messages.all(new, self._message)))
        return [*head, *grown.parts]

    def _message(self, message: RequestMessage) -> bytes:
        form = self._wire_form(message)
        return _SKIPPED if form is None else encoded(form)

    def _wire_form(self, message: RequestMessage) -> Mapping[str, object] | None:
        refuse_images(message)
        match message.role:
            case "user":
                return {"role": "user", "content": message_text(message)}
            case "assistant":
                return self._assistant(message)
            case "tool":
                call_id = getattr(message, "tool_call_id", None) or ""
                content = message_text(message) or NO_OUTPUT
                return {"role": "tool", "tool_call_id": call_id, "content": content}
            case "system":
                return {"role": self._route.system_role, "content": message_text(message)}
            case _:
                # A developer message tells of tool changes, which this protocol cannot carry.
                return None

    def _assistant(self, message: RequestMessage) -> Mapping[str, object] | None:
        form: dict[str, object] = {"role": "assistant", "content": message_text(message)}
        field = self._route.reasoning_field
        thoughts = [b.text for b in message.content if isinstance(b, ReasoningBlock) and b.text]
        if thoughts and field != "none":
            form[field] = "".join(thoughts)
        calls = [_call(block) for block in message.content if isinstance(block, ToolCallBlock)]
        if calls:
            form["tool_calls"] = calls
        # What only held blocks that this route does not carry would be an empty message.
        return form if form["content"] or len(form) > 2 else None

    def _tool(self, tool: ToolSchema) -> bytes:
        known = self._tools.get(id(tool))
        if known is not None and known[0] is tool:
            return known[1]
        _NAMES.check_tool(tool.name, self._route.label)
        function: dict[str, JsonValue] = {
            "name": tool.name,
            "description": scrub_surrogates(tool.description),
            "parameters": tool.parameters,
        }
        if self._route.strict_tools and _closed(tool.parameters):
            function["strict"] = True
        piece = encode_json({"type": "function", "function": function})
        if len(self._tools) >= _TOOLS_KEPT:
            self._tools.clear()  # schemas that changed for long; they are encoded anew
        self._tools[id(tool)] = (tool, piece)
        return piece


def _thinking(options: GenerateOptions, route: Route, facts: ModelFacts) -> list[bytes]:
    check_effort(options, route, facts)
    effort = options.reasoning_effort
    if route.thinking_format == "deepseek":
        if effort == "off" or options.purpose == "session-title":
            return [b'"thinking":{"type":"disabled"}']
        if effort is not None:
            return [b'"thinking":{"type":"enabled"}', b'"reasoning_effort":' + encoded(effort)]
        return []
    if route.thinking_format == "enable_thinking":
        if effort == "off" or options.purpose == "session-title":
            return [b'"enable_thinking":false']
        return [] if effort is None else [b'"enable_thinking":true']
    return [] if effort is None else [b'"reasoning_effort":' + encoded(effort)]


def _call(block: ToolCallBlock) -> Mapping[str, object]:
    arguments = "{}" if is_blank(block.arguments) else block.arguments
    function = {"name": _NAMES.sendable(block.name), "arguments": arguments}
    return {"id": block.id, "type": "function", "function": function}


def _closed(schema: object) -> bool:
    """Whether a schema is strict as it stands: everything required, no further properties."""
    stack: list[object] = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            if not _closed_object(node):
                return False
            stack.extend(node.values())
        elif isinstance(node, Sequence) and not isinstance(node, str):
            stack.extend(node)
    return True


def _closed_object(node: Mapping[str, object]) -> bool:
    properties = node.get("properties")
    if node.get("type") != "object" and not isinstance(properties, Mapping):
        return True
    required = node.get("required")
    listed = set(required) if isinstance(required, Sequence) else set()
    names = set(properties) if isinstance(properties, Mapping) else set()
    return node.get("additionalProperties") is False and names <= listed
