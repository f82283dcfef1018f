"""For tests of what retries: a clock that waits for the test instead of for time."""

import anyio
import anyio.lowlevel


class ManualSleep:
    """The `sleep` of `mount`: keeps how long each wait should last, and who waits.

    Args:
        held: Waits last until `release`; without it they end at once.
    """

    def __init__(self, *, held: bool = False) -> None:
        self.waits_s: list[float] = []
        """What was asked for, in order."""
        self.running = 0
        """How many wait now."""
        self._held = held
        self._began = anyio.Event()
        self._released = anyio.Event()

    async def __call__(self, seconds: float) -> None:
        """Wait."""
        self.waits_s.append(seconds)
        self._began.set()
        self.running += 1
        try:
            if self._held:
                await self._released.wait()
            else:
                await anyio.lowlevel.checkpoint()
        finally:
            self.running -= 1

    async def began(self) -> None:
        """Return once a wait has begun."""
        await self._began.wait()

    def release(self) -> None:
        """End the waits, present ones and those to come."""
        self._released.set()
