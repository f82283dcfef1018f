"""What a route is told of tools that came and went during a session."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from dsh_llm.blocks import ContentBlock, ToolAdditionBlock, ToolRemovalBlock
from dsh_llm.growing import folded, mapped
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
    declared, told = told_tools(messages, tools, mode, history)
    return mapped(messages, (project_tool_updates, told), lambda: tool_story(told)), declared


class ToldTools(NamedTuple):
    """On what it depends which changes a route is told of."""

    declared: frozenset[str]
    offered: frozenset[str]
    """From the start."""
    cited: frozenset[MessageId]
    removals: bool


def told_tools(
    messages: Sequence[RequestMessage],
    tools: Tools,
    mode: ToolUpdateMode | None,
    history: ToolHistory | None,
) -> tuple[Tools, ToldTools | None]:
    """The tools to declare, and what a route is told of their changes; `None`: nothing."""
    if mode is None:
        return _eager(tools), None
    if history is None or not _covers(messages, history):
        return tools, None
    declared = _declarations(tools, mode, history)
    names = frozenset(tool.name for tool in declared)
    told = ToldTools(
        declared=names,
        offered=names & {tool.name for tool in history.tools if not tool.defer_loading},
        cited=frozenset(update.message_id for update in history.updates),
        removals=mode == "in-history",
    )
    return (tools if declared == list(tools or ()) else tuple(declared)), told


def tool_story(
    told: ToldTools | None,
) -> Callable[[RequestMessage], RequestMessage | None]:
    """A function that gives each message as the route gets it, `None` if nothing of it is left.

    It wants the messages in order: it follows which tools the model was offered.
    """
    return _without_developer if told is None else _Story(told).tell


def _without_developer(message: RequestMessage) -> RequestMessage | None:
    return None if message.role == "developer" else message


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
    present = folded(messages, _Developers, _Developers).ids
    return all(update.message_id in present for update in history.updates)


class _Developers:
    """The developer messages of a history."""

    __slots__ = ("ids",)

    def __init__(self) -> None:
        self.ids: set[MessageId] = set()

    def extend(self, messages: Sequence[RequestMessage]) -> None:
        self.ids.update(m.id for m in messages if m.role == "developer" and isinstance(m, Message))


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


class _Story:
    """Follows which tools the model was offered, message by message, as the route tells it."""

    def __init__(self, told: ToldTools) -> None:
        self._declared, offered, self._cited, self._removals = told
        self._offered = set(offered)

    def tell(self, message: RequestMessage) -> RequestMessage | None:
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
