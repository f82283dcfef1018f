"""The spill store: `ctx.spill_store`. Upstream: packages/shell/spill-store/src/index.ts."""

import os
from pathlib import Path
from typing import ClassVar

import anyio.to_thread
import msgspec

from dsh_cordis import Context, Service

from ._files import create_private, default_spill_root, safe_name, session_folder
from .errors import SpillError


class SavedText(msgspec.Struct, frozen=True, kw_only=True):
    """A text that was saved."""

    locator: str
    """Where it is: the absolute path of a file."""
    bytes: int
    retrieval_hint: str
    """Tells a model how to get at it."""


class SpillStore(Service):
    """Keeps outputs that are too large for a model, one private file each.

    The files stay when the store is unloaded: what a model was told about must be there when it
    looks.

    Attributes:
        root: Where they are.
    """

    key: ClassVar[str] = "spill_store"

    def __init__(self, ctx: Context, root: Path | None = None) -> None:
        super().__init__(ctx)
        root = (root or default_spill_root()).absolute()
        self.root = root.parent.resolve() / root.name

    def folder(self, owner: str) -> Path:
        """Where the files of an owner are; it may not exist yet."""
        return session_folder(self.root, owner)

    async def save_text(
        self, owner: str, source: str, suggested_name: str, content: str
    ) -> SavedText:
        """Save a text as UTF-8.

        Args:
            owner: Whose it is: a session id.
            source: What made it: the name of a tool.
            suggested_name: Part of the file's name, reduced to safe characters.
            content: All of it.

        Raises:
            SpillError: It cannot be written.
        """
        data = content.encode("utf-8", "replace")
        name = safe_name(f"{source}-{suggested_name}")
        path = await anyio.to_thread.run_sync(_save, self.folder(owner), name, data)
        return SavedText(
            locator=str(path),
            bytes=len(data),
            retrieval_hint=f"read {path} in parts, or search it",
        )


def _save(folder: Path, name: str, data: bytes) -> Path:
    path: Path | None = None
    try:
        path, descriptor = create_private(folder, name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except OSError as error:
        if path is not None:
            path.unlink(missing_ok=True)
        reason = error.strerror or type(error).__name__
        raise SpillError(f"the text was not saved below {folder}: {reason}", error) from error
    return path
