"""The tool `read_image`, there while `ctx.attachments` is. Mountable on its own."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Protocol

import msgspec

from dsh_brand import Json, JsonObject, from_json, thaw_json
from dsh_cordis import Context
from dsh_llm import Block, LlmService
from dsh_tools import ToolDefinition, ToolRegistry, ToolRunContext, tool
from dsh_tools.presentation import GenericCall, Location

from . import texts
from .errors import FsError
from .service import FsService
from .tools import resolve

MAX_IMAGE_BYTES: Final = 10 * 1024 * 1024
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", b"", "image/png"),
    (b"\xff\xd8\xff", b"", "image/jpeg"),
    (b"GIF87a", b"", "image/gif"),
    (b"GIF89a", b"", "image/gif"),
    (b"RIFF", b"WEBP", "image/webp"),
)
"""First bytes, what stands at the eighth, and the type."""


class KeepsAttachments(Protocol):
    """The attachment service, as far as it is used here."""

    async def save(self, owner: str, data: bytes, *, media_type: str, name: str) -> JsonObject:
        """Keep the bytes for a session; gives what an image block holds as its `attachment`."""
        ...


class Needs(Context):
    """What the tool works with."""

    fs: FsService
    tools: ToolRegistry
    llm: LlmService
    attachments: KeepsAttachments


class ImageValue(msgspec.Struct, frozen=True, rename="camel"):
    """An image that was attached."""

    path: str
    media_type: str
    size_bytes: int
    attachment: Json


def image_tool(ctx: Needs) -> None:
    """Register the tool for as long as images can be attached."""
    ctx.tools.register(read_image_tool(ctx))


apply = image_tool


def read_image_tool(ctx: Needs) -> ToolDefinition:
    """The definition of `read_image`."""

    @tool(
        description=texts.READ_IMAGE,
        render=_render,
        concurrency_safe=True,
        present_call=lambda arguments: GenericCall(
            f"Look at {arguments['file_path']}",
            kind="read",
            locations=(Location(str(arguments["file_path"])),),
        ),
    )
    async def read_image(
        run: ToolRunContext, file_path: Annotated[str, texts.READ_FILE_PATH]
    ) -> ImageValue:
        owner = await _seeing_owner(ctx, run)
        target = await resolve(ctx.fs, run, file_path)
        shown = target.display_path
        data = await ctx.fs.read_bytes(target, MAX_IMAGE_BYTES + 1, signal=run.signal)
        if len(data) > MAX_IMAGE_BYTES:
            raise FsError(
                f"{shown} has more than {MAX_IMAGE_BYTES} bytes; make it smaller first",
                "FS_TOO_LARGE",
                shown,
            )
        kind = _media_type(data, shown)
        name = shown.rpartition("/")[2]
        kept = await ctx.attachments.save(owner, data, media_type=kind, name=name)
        return ImageValue(shown, kind, len(data), kept)

    return read_image


async def _seeing_owner(ctx: Needs, run: ToolRunContext) -> str:
    """The session that calls, if its model is known to read images."""
    choice = None if run.agent is None else run.agent.model.current()
    if run.agent is None or choice is None:
        raise ValueError("read_image is for agents with a model, and there is none here")
    info = await ctx.llm.resolve_model_info(choice.provider, choice.model, run.signal)
    if "image" not in (info.input_modalities or ()):
        raise ValueError(
            f"the model {choice.model!r} is not declared to read images; do without the image"
        )
    return run.agent.id


def _media_type(data: bytes, shown: str) -> str:
    for start, eighth, kind in _SIGNATURES:
        if data.startswith(start) and data[8:].startswith(eighth):
            return kind
    raise ValueError(f"{shown} is no PNG, JPEG, GIF or WebP image; use `read` for text")


def _render(arguments: object, value: Mapping[str, Any]) -> list[Block]:
    # As the attachment capability has registered it, or kept whole where nothing has.
    block = {"type": "image", "attachment": thaw_json(value["attachment"])}
    return [from_json(Block, block)]
