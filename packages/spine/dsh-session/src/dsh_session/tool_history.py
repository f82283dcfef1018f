"""Which tools the model was told of, and when: a fold of headers and developer messages."""

from typing import Final

from dsh_llm import ToolHistory, ToolRemovalBlock, ToolSchema, ToolUpdate
from dsh_session.events import (
    DeveloperMessageEvent,
    RequestHeader,
    RequestHeaderEvent,
    SessionEvent,
)
from dsh_session.headers import header_of, same_tool
from dsh_session.tool_changes import additions, find_definition

_NONE: Final[frozenset[str]] = frozenset()  # one for all: an empty set of its own weighs 216 bytes


class ToolHistoryFold:
    """Folds a log event by event; `snapshot` is what requests are made with."""

    def __init__(self) -> None:
        self._headers: dict[int, RequestHeader] = {}
        self._active: tuple[ToolSchema, ...] | None = None
        self._baseline: tuple[ToolSchema, ...] = ()
        self._declared: dict[str, ToolSchema] = {}
        self._present = _NONE
        self._updates: list[ToolUpdate] = []

    def push(self, event: SessionEvent) -> None:
        """Take the next event into account."""
        if isinstance(event.data, DeveloperMessageEvent):
            self._change(event.data)
            return
        header = header_of(event)
        if header is not None:
            self._headers[event.seq] = header
            self._take(header, event.data)

    def snapshot(self) -> ToolHistory | None:
        """The baseline and its updates; `None` before the first header."""
        if self._active is None:
            return None
        if {tool.name for tool in self._active} != self._present:
            return ToolHistory(tools=self._active)
        return ToolHistory(tools=self._baseline, updates=tuple(self._updates))

    def _take(self, header: RequestHeader, data: object) -> None:
        tools = header.tools or ()
        begins = self._active is None or (
            isinstance(data, RequestHeaderEvent)
            and (data.reason == "series" or data.starts_series is True)
        )
        self._active = tools
        if begins or any(self._redefines(tool) for tool in tools):
            self._baseline = tools
            self._declared = {tool.name: tool for tool in tools}
            self._present = frozenset(self._declared) or _NONE
            self._updates = []

    def _redefines(self, tool: ToolSchema) -> bool:
        declared = self._declared.get(tool.name)
        return declared is not None and not same_tool(declared, tool)

    def _change(self, data: DeveloperMessageEvent) -> None:
        header = None if data.header_seq is None else self._headers.get(data.header_seq)
        added: list[ToolSchema] = []
        for block in additions(data.message):
            tool = None if header is None else find_definition(header, block.tool_name)
            if tool is not None:
                added.append(tool)
                self._declared[tool.name] = tool
                self._present |= {tool.name}
        for removal in data.message.content:
            if isinstance(removal, ToolRemovalBlock):
                self._present -= {removal.tool_name}
        self._updates.append(ToolUpdate(message_id=data.message.id, additions=tuple(added)))
