"""`read_image` in a real loop, beside a stand-in for the attachment capability."""

import hashlib
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import dsh_fs
from dsh_agent_loop.testing import LoopStack, call, loop_stack, say
from dsh_brand import JsonObject, freeze_object, to_json
from dsh_cordis import Context
from dsh_llm import AbortSignal, LlmResolvedModelInfo, TextBlock, message_text
from dsh_session import ToolResultEvent

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"


class Attachments:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.kept: list[tuple[str, bytes, str, str]] = []

    async def save(self, owner: str, data: bytes, *, media_type: str, name: str) -> JsonObject:
        self.kept.append((owner, data, media_type, name))
        return freeze_object({"id": f"sha256:{hashlib.sha256(data).hexdigest()}"})


def attachments(ctx: Context) -> None:
    ctx.provide("attachments", Attachments())


@asynccontextmanager
async def stack_in(
    root: Path, path: str, *, reads: Sequence[str] | None = ("text", "image")
) -> AsyncIterator[LoopStack]:
    def mount(ctx: Context) -> None:
        ctx.plugin(dsh_fs, {"root": root, "confine": True})
        ctx.plugin(attachments)

    arguments = f'{{"file_path": "{path}"}}'
    async with loop_stack(
        call(("c1", "read_image", arguments)), say("seen"), before=mount
    ) as stack:

        async def resolve_model(
            provider: str, model: str, signal: AbortSignal | None = None
        ) -> LlmResolvedModelInfo:
            return LlmResolvedModelInfo(
                provider=provider,
                id=model,
                name=model,
                input_modalities=None if reads is None else tuple(reads),
            )

        stack.model.resolve_model = resolve_model  # type: ignore[method-assign]  # its facts
        yield stack


def failure_in(stack: LoopStack) -> str:
    [result] = [e.data for e in stack.agent.session.events if isinstance(e.data, ToolResultEvent)]
    return message_text(result.message)


async def test_C31_an_image_reaches_a_model_that_reads_images(tmp_path: Path) -> None:
    (tmp_path / "a b.png").write_bytes(PNG)
    async with stack_in(tmp_path, f"{tmp_path}/a b.png") as stack:
        await stack.run("look")
        [kept] = stack.ctx.attachments.kept
        assert kept == (stack.agent.id, PNG, "image/png", "a b.png")
        [block] = stack.model.requests[-1].messages[-1].content
        digest = hashlib.sha256(PNG).hexdigest()
        assert to_json(block) == {"type": "image", "attachment": {"id": f"sha256:{digest}"}}


@pytest.mark.parametrize("reads", [None, (), ("text",)])
async def test_C31_a_model_that_is_not_declared_to_read_images_gets_none(
    tmp_path: Path, reads: tuple[str, ...] | None
) -> None:
    (tmp_path / "i.png").write_bytes(PNG)
    async with stack_in(tmp_path, f"{tmp_path}/i.png", reads=reads) as stack:
        await stack.run("look")
        assert "'m' is not declared to read images" in failure_in(stack)
        assert stack.ctx.attachments.kept == []


async def test_C31_a_model_that_takes_over_and_reads_text_is_told_of_the_image(
    tmp_path: Path,
) -> None:
    (tmp_path / "i.png").write_bytes(PNG)
    reads = ["text", "image"]
    async with stack_in(tmp_path, f"{tmp_path}/i.png", reads=reads) as stack:
        await stack.run("look")
        reads.remove("image")
        await stack.run("again")
        [result] = [m for m in stack.model.requests[-1].messages if m.role == "tool"]
        digest = hashlib.sha256(PNG).hexdigest()
        assert f"image sha256:{digest[:8]}" in message_text(result)


async def test_C31_the_tool_is_there_while_attachments_are(tmp_path: Path) -> None:
    async with loop_stack(before=lambda ctx: ctx.plugin(dsh_fs, {"root": tmp_path})) as stack:
        assert "read_image" not in stack.ctx.tools.names()
        async with stack.ctx.plugin(attachments):
            await stack.ctx.settled()
            schema = next(s for s in stack.ctx.tools.schemas() if s.name == "read_image")
            assert schema.parameters["required"] == ["file_path"]
            assert list(schema.parameters["properties"]) == ["file_path"]
        await stack.ctx.settled()
        assert "read_image" not in stack.ctx.tools.names()


async def test_C31_what_is_no_image_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh_fs.image_tool.MAX_IMAGE_BYTES", 100)
    (tmp_path / "text.png").write_text("no image", encoding="utf-8")
    (tmp_path / "wave").write_bytes(b"RIFF....WAVE")
    (tmp_path / "large.png").write_bytes(PNG + b"x" * 100)
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    for name, told in (
        ("text.png", "is no PNG, JPEG, GIF or WebP image; use `read`"),
        ("wave", "is no PNG"),
        ("empty", "is no PNG"),
        ("large.png", "make it smaller first"),
        ("pipe", "is no regular file"),
        ("none", "does not exist"),
        ("../out", "lies outside the workspace"),
    ):
        async with stack_in(tmp_path, f"{tmp_path}/{name}") as stack:
            await stack.run("look")
            assert told in failure_in(stack)
            assert stack.ctx.attachments.kept == []


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
    ],
)
async def test_C31_kinds_are_told_by_content(tmp_path: Path, start: bytes, kind: str) -> None:
    (tmp_path / "i").write_bytes(start)
    async with stack_in(tmp_path, f"{tmp_path}/i") as stack:
        await stack.run("look")
        assert [kept[2] for kept in stack.ctx.attachments.kept] == [kind]
        assert not any(
            isinstance(b, TextBlock) for b in stack.model.requests[-1].messages[-1].content
        )
