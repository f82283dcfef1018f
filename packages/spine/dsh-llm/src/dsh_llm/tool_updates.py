"""What a route is told of tools that came and went during a session."""

from collections.abc import Mapping, Sequence

import msgspec

from dsh_llm.blocks import ContentBlock, ToolAdditionBlock, ToolRemovalBlock
from dsh_llm.ids import MessageId
from dsh_llm.messages import Message, RequestMessage
from dsh_llm.models import ToolUpdateMode
from dsh_llm.request import ToolHistory, ToolSchema

Tools = Sequence[ToolSchema] | None


def project_tool_updates(
    messages: Sequence[RequestMessage],
    tools: Tools,
    mode: ToolUpdateMode | None,
    history: ToolHistory | None,
) -> tuple[Sequence[RequestMessage], Tools]:
    """The messages and the declarations that a route gets; pure.

    Args:
        messages: The messages of the request, oldest first.
        tools: The tools on offer now.
        mode: What the route can read; `None`: no changes in history.
        history: How the declarations came about; `None` if that is not known.

    Returns:
        Messages with those developer blocks that the route reads, and the tools to declare. What
        needs no change comes back by identity.
    """
    if mode is None:
        return _without_developers(messages), _eager(tools)
    if history is None or not _covers(messages, history):
        return _without_developers(messages), tools
    declared = _declarations(tools, mode, history)
    told = _Told(declared, history, removals=mode == "in-history")
    kept = [same for message in messages if (same := told.project(message)) is not None]
    unchanged = len(kept) == len(messages) and all(
        a is b for a, b in zip(kept, messages, strict=True)
    )
    same_tools = declared == list(tools or ())
    return messages if unchanged else tuple(kept), tools if same_tools else tuple(declared)


def _without_developers(messages: Sequence[RequestMessage]) -> Sequence[RequestMessage]:
    kept = [message for message in messages if message.role != "developer"]
    return messages if len(kept) == len(messages) else tuple(kept)


def _eager(tools: Tools) -> Tools:
    if tools is None or all(tool.defer_loading is None for tool in tools):
        return tools
    return tuple(_marked(tool, None) for tool in tools)


def _marked(tool: ToolSchema, mark: bool | None) -> ToolSchema:
    if tool.defer_loading is mark:
        return tool
    return msgspec.structs.replace(tool, defer_loading=mark)


def _covers(messages: Sequence[RequestMessage], history: ToolHistory) -> bool:
    """Whether all developer messages that the history tells of are in the request."""
    present = {m.id for m in messages if isinstance(m, Message) and m.role == "developer"}
    return all(update.message_id in present for update in history.updates)


def _declarations(tools: Tools, mode: ToolUpdateMode, history: ToolHistory) -> list[ToolSchema]:
    declared = {tool.name: tool for tool in history.tools}
    for update in history.updates:
        for tool in update.additions:
            if tool.name not in declared:
                declared[tool.name] = _marked(tool, True)
    if mode == "addition-only":
        # A removal cannot be told: what is gone must not be declared at all.
        names = {tool.name for tool in tools or ()}
        return [tool for tool in declared.values() if tool.name in names]
    return list(declared.values())


class _Told:
    """Follows which tools the model was offered, message by message, as the route tells it."""

    def __init__(
        self, declared: Sequence[ToolSchema], history: ToolHistory, *, removals: bool
    ) -> None:
        baseline: Mapping[str, ToolSchema] = {tool.name: tool for tool in history.tools}
        self._declared = {tool.name for tool in declared}
        self._offered = {
            name for name in self._declared & baseline.keys() if not baseline[name].defer_loading
        }
        self._cited: set[MessageId] = {update.message_id for update in history.updates}
        self._removals = removals

    def project(self, message: RequestMessage) -> RequestMessage | None:
        """The message as the route gets it, `None` if nothing of it is left."""
        if not isinstance(message, Message) or message.role != "developer":
            return message
        if message.id not in self._cited:
            return None
        content = tuple(block for block in message.content if self._stays(block))
        if len(content) == len(message.content):
            return message
        return msgspec.structs.replace(message, content=content) if content else None

    def _stays(self, block: ContentBlock) -> bool:
        if isinstance(block, ToolAdditionBlock):
            news = block.tool_name in self._declared and block.tool_name not in self._offered
            if news:
                self._offered.add(block.tool_name)
            return news
        if isinstance(block, ToolRemovalBlock):
            told = self._removals and block.tool_name in self._offered
            if told:
                self._offered.discard(block.tool_name)
            return told
        return True
