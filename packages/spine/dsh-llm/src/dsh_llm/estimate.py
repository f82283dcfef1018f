"""The built-in estimate of tokens: a quarter of the length, so that no tokenizer is needed.

Lengths are counted in UTF-16 units: prices in logs that implementations share must agree.
"""

from collections.abc import Iterable, Sequence

from dsh_brand import encode, utf16_len
from dsh_llm.blocks import Block, ReasoningBlock, TextBlock, ToolCallBlock
from dsh_llm.messages import RequestMessage
from dsh_llm.request import ToolSchema

_OVERHEAD = 4


def estimate_text(text: str) -> int:
    """Tokens of a text: a quarter of its length, rounded up."""
    return _quarter(utf16_len(text))


def _quarter(length: int) -> int:
    return -(-length // 4)


def estimate_block(block: Block) -> int:
    """Tokens of a block."""
    match block:
        case TextBlock(text=text) | ReasoningBlock(text=text):
            return estimate_text(text) + _OVERHEAD
        case ToolCallBlock(name=name, arguments=arguments):
            return estimate_text(name) + estimate_text(arguments) + _OVERHEAD
        case _:
            return estimate_text(encode(block).decode()) + _OVERHEAD


def estimate_message(message: RequestMessage) -> int:
    """Tokens of a message; a system message counts as one text, and as nothing without a block."""
    if message.role != "system":
        return sum(map(estimate_block, message.content)) + _OVERHEAD
    if not message.content:
        return 0
    texts = (block.text for block in message.content if isinstance(block, TextBlock))
    return _quarter(sum(map(utf16_len, texts))) + _OVERHEAD


def estimate_messages(messages: Iterable[RequestMessage]) -> int:
    """Tokens of several messages."""
    return sum(map(estimate_message, messages))


def estimate_tools(tools: Sequence[ToolSchema] | None) -> int:
    """Tokens of the declarations of tools; 0 without any."""
    return estimate_text(encode(tuple(tools)).decode()) + _OVERHEAD if tools else 0
