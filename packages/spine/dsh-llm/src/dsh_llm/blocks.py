"""Content blocks. Upstream: packages/llm/llm/src/types.ts."""

from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from typing_extensions import override

from dsh_brand import JsonObject, OpenUnion, Wire, freeze_object
from dsh_llm.ids import CallId

B = TypeVar("B", bound="Block")


class Block(Wire, frozen=True, tag_field="type"):
    """Base of the content blocks; others join by `register_block`."""

    @property
    def type(self) -> str:
        """The tag that names this kind of block on the wire."""
        return str(self.__struct_config__.tag)


class TextBlock(Block, frozen=True, tag="text"):
    """Text that the user sees."""

    text: str


class ReasoningBlock(Block, frozen=True, tag="reasoning"):
    """What the model thought before it answered."""

    text: str


class ToolCallBlock(Block, frozen=True, tag="tool-call"):
    """A call that the model asks for."""

    id: CallId
    name: str
    arguments: str
    """JSON as the model wrote it, never reformatted; may be invalid."""


class ToolAdditionBlock(Block, frozen=True, tag="tool-addition"):
    """A tool became available; in developer messages only."""

    tool_name: str


class ToolRemovalBlock(Block, frozen=True, tag="tool-removal"):
    """A tool went away; in developer messages only."""

    tool_name: str


class OpaqueBlock(Block, frozen=True, tag=False):
    """A block of a kind that nobody registered, kept whole."""

    @property
    def raw(self) -> JsonObject:
        """The JSON object as it was read."""
        return _NOTHING if self.extra is None else self.extra

    @property
    @override
    def type(self) -> str:
        """The unregistered tag; empty if the object has none."""
        tag = self.raw.get("type")
        return tag if isinstance(tag, str) else ""


_NOTHING: Final[JsonObject] = freeze_object({})

_BLOCKS = OpenUnion(Block, OpaqueBlock)


def register_block(cls: type[B]) -> type[B]:
    """Teach the wire a kind of block, by its tag; usable as a decorator."""
    return _BLOCKS.register(cls)


for _core in (TextBlock, ReasoningBlock, ToolCallBlock, ToolAdditionBlock, ToolRemovalBlock):
    _BLOCKS.register(_core)

if TYPE_CHECKING:  # msgspec needs the tags of the core blocks; a checker must see that others exist
    ContentBlock: TypeAlias = Block
else:
    ContentBlock = TextBlock | ReasoningBlock | ToolCallBlock | ToolAdditionBlock | ToolRemovalBlock
