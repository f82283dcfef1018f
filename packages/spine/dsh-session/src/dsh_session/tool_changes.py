"""Tool additions in developer messages, and the header that defines them."""

from collections.abc import Iterator

from dsh_llm import Message, ToolAdditionBlock, ToolSchema
from dsh_session.events import RequestHeader


def additions(message: Message) -> Iterator[ToolAdditionBlock]:
    """The additions of a message, in order."""
    return (block for block in message.content if isinstance(block, ToolAdditionBlock))


def find_definition(header: RequestHeader, name: str) -> ToolSchema | None:
    """The only definition of that name in the header."""
    found = [tool for tool in header.tools or () if tool.name == name]
    return found[0] if len(found) == 1 else None


def check_addition_binding(header: RequestHeader, name: str) -> str | None:
    """What is wrong with a header as the source of an added tool; `None` if nothing is."""
    tool = find_definition(header, name)
    if tool is None:
        return f"does not define tool {name!r} exactly once"
    if not isinstance(tool.description, str):
        return f"describes tool {name!r} without a text"
    if not isinstance(tool.parameters, dict):
        return f"gives tool {name!r} no parameter object"
    if tool.defer_loading not in (None, True):
        return f"gives tool {name!r} an invalid deferLoading"
    return None
