"""An event that costs nothing until somebody waits for it."""

import anyio


class Gate:
    """Opened once. Idle agents hold several, so each makes its `anyio.Event` only when needed."""

    __slots__ = ("_event", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._event: anyio.Event | None = None

    def open(self) -> None:
        """Let everybody through, from now on."""
        self.is_open = True
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        """Return once it is open; at once, without a checkpoint, if it is."""
        if self.is_open:
            return
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
