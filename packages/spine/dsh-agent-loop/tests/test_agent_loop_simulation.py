"""Two hundred stories of random trouble, and that the simulator notices a broken promise."""

from collections.abc import Callable

import anyio
import pytest

from dsh_agent import InboxState
from dsh_agent_loop.inbox import LoopInbox
from dsh_agent_loop.testing import SimulationFailedError, simulate

SEEDS = 100


async def test_A73_A109_A111_a_hundred_seeds_keep_every_promise(anyio_backend_name: str) -> None:
    first = 0 if anyio_backend_name == "asyncio" else SEEDS
    for seed in range(first, first + SEEDS):
        with anyio.fail_after(20):
            report = await simulate(seed)
        assert report.turns > 0


async def test_a_failing_seed_names_itself_and_how_to_replay_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    claim: Callable[..., object] = LoopInbox.claim

    def forgetful(self: LoopInbox, turn: int, *, boundary: bool) -> object:
        claim(self, turn, boundary=boundary)
        return InboxState()

    monkeypatch.setattr(LoopInbox, "claim", forgetful)
    with pytest.raises(SimulationFailedError, match=r"replay with: await simulate\(3\)"):
        await simulate(3, ticks=40)


async def test_one_seed_is_one_story(anyio_backend_name: str) -> None:
    if anyio_backend_name != "asyncio":
        pytest.skip("trio orders tasks by a chance of its own")
    assert await simulate(5) == await simulate(5)
