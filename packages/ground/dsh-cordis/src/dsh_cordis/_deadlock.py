"""Which waits could never end: the wait-for graph of fibers."""

from collections.abc import Iterator

from dsh_cordis._activation import FiberState, Frame, Node, frame_var


def lifecycle_frame() -> Frame | None:
    """The frame of the running code if a fiber's progress waits for that code."""
    frame = frame_var.get()
    if frame is None or frame.is_task:
        return None
    activation = frame.activation
    fiber = activation.fiber
    if fiber.activation is not activation:
        return None
    running = activation.phase == "running" or fiber.state is FiberState.UNLOADING
    return frame if running else None


def leads_to(start: Node, goal: Node, *, going_down: bool) -> bool:
    """Whether `start` can only come to rest after `goal`, whose lifecycle code asks.

    A fiber that goes down waits for its children and its dependents; one that loads waits for
    what its body awaits. A goal whose body runs is cancelled by a teardown, so that is no wait.
    """
    seen: set[Node] = set()
    todo = [(start, going_down)]
    while todo:
        node, down = todo.pop()
        down = down or node.state is FiberState.UNLOADING
        if node is goal and (not down or goal.activation.phase != "running"):
            return True
        if node in seen:
            continue
        seen.add(node)
        if down:
            todo += [(child, True) for child in node.fibers_below()]
            todo += [(dependent, True) for dependent in _dependents(node)]
        todo += [(awaited, False) for awaited in node.activation.frame.awaiting]
    return False


def _dependents(fiber: Node) -> Iterator[Node]:
    for claim in fiber.activation.claims.values():
        for activation in claim.dependents:
            yield activation.fiber
