"""Abort signals."""

import anyio
from anyio.lowlevel import checkpoint

from dsh_llm import AbortController, fuse_signals


def test_T80_both_latches_are_one_way_and_the_first_reason_counts() -> None:
    controller = AbortController()
    signal = controller.signal
    assert (signal.aborted, signal.abandoned, signal.reason) == (False, False, None)
    controller.abort("first")
    controller.abort("second")
    assert (signal.aborted, signal.abandoned, signal.reason) == (True, False, "first")
    controller.abandon()
    assert signal.abandoned


def test_T80_observers_run_in_order_without_a_loop_and_once() -> None:
    controller = AbortController()
    seen: list[str] = []
    controller.signal.observe(lambda: seen.append("a"))
    remove = controller.signal.observe(lambda: seen.append("b"))
    controller.signal.observe(lambda: seen.append("c"))
    remove()
    controller.abort()
    controller.abort()
    assert seen == ["a", "c"]


def test_T80_observing_an_aborted_signal_calls_at_once() -> None:
    controller = AbortController()
    controller.abort()
    seen: list[str] = []
    controller.signal.observe(lambda: seen.append("late"))()
    assert seen == ["late"]


def test_an_observer_that_raises_starves_no_other() -> None:
    controller = AbortController()
    seen: list[str] = []

    def broken() -> None:
        raise RuntimeError("observer")

    controller.signal.observe(broken)
    controller.signal.observe(lambda: seen.append("next"))
    controller.abort()
    assert seen == ["next"]


def test_an_observer_may_remove_one_that_has_not_run() -> None:
    controller = AbortController()
    seen: list[str] = []
    removers = [controller.signal.observe(lambda: removers[1]())]
    removers.append(controller.signal.observe(lambda: seen.append("removed")))
    controller.abort()
    assert seen == []


async def test_T80_wait_returns_when_the_latch_is_set() -> None:
    controller = AbortController()
    done: list[str] = []

    async def wait(abandoned: bool) -> None:
        await (controller.signal.wait_abandoned() if abandoned else controller.signal.wait())
        done.append("abandoned" if abandoned else "aborted")

    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, False)
            tasks.start_soon(wait, True)
            await anyio.wait_all_tasks_blocked()
            controller.abort()
            await anyio.wait_all_tasks_blocked()
            assert done == ["aborted"]
            controller.abandon()
        await controller.signal.wait()
        await checkpoint()
    assert done == ["aborted", "abandoned"]


def test_T80_a_fused_signal_follows_its_sources_until_it_is_detached() -> None:
    first, second = AbortController(), AbortController()
    fused, detach = fuse_signals(first.signal, None, second.signal)
    second.abort("second")
    first.abort("first")
    first.abandon()
    assert (fused.signal.reason, fused.signal.abandoned) == ("second", True)
    detach()

    third = AbortController()
    loose, detach = fuse_signals(third.signal)
    detach()
    third.abort()
    assert not loose.signal.aborted


def test_T80_fusing_an_aborted_signal_aborts_at_once() -> None:
    source = AbortController()
    source.abort("before")
    fused, _ = fuse_signals(source.signal)
    assert fused.signal.reason == "before"
    fused.abort("after")
    assert fused.signal.reason == "before"
