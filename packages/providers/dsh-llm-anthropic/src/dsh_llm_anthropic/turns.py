"""Messages to turns: merged, alternating, results first, prompts behind them (L138, L139, L176)."""

from collections.abc import Sequence

from .fragments import TURN_END, Fragment, turn_of

NO_CONTENT = Fragment("user", turn_of("user", (b'{"type":"text","text":"(no content)"}',)))
"""The user turn that the protocol wants before anything else."""

Turn = list[Fragment]
"""Consecutive messages of one role, at least one; a prompt always stands alone."""


def turns_of(fragments: Sequence[Fragment], *, begun: bool = False) -> list[Turn] | None:
    """The turns of a request.

    Args:
        fragments: Its messages.
        begun: A user turn stands before them, and the first of them is the assistant's.

    Returns:
        `None` if a prompt stands where no user turn does, so that the protocol cannot express it.
    """
    turns: list[Turn] = []
    prompts: list[Turn] = []
    last = "user" if begun else ""
    for fragment in fragments:
        role = fragment.role
        if not fragment.turn:
            continue
        if role == "system":
            prompts.append([fragment])
            continue
        if role == "assistant":
            if prompts:
                if last != "user":
                    return None
                turns += prompts
                prompts.clear()
            elif not turns and not begun:
                turns.append([NO_CONTENT])
        if role == last:
            turns[-1].append(fragment)
        else:
            turns.append([fragment])
            last = role
    if prompts and last != "user":
        return None
    turns += prompts
    return turns if turns or begun else [[NO_CONTENT]]


def closed_before(fragments: Sequence[Fragment]) -> int:
    """How many of the messages make turns that no later message can change.

    They end with a user turn that an assistant's follows, so that nothing merges over the edge,
    and another user turn comes behind it, which has the cache mark.
    """
    user_behind = False
    for number in range(len(fragments) - 1, 0, -1):
        here, before = fragments[number], fragments[number - 1]
        if not here.turn:
            continue
        if here.role == "user":
            user_behind = True
        elif user_behind and here.role == "assistant" and before.role == "user" and before.turn:
            return number
    return 0


def encoded_turn(turn: Turn, mark: bytes = b"") -> bytes:
    """A turn as JSON, with a cache mark on its last block."""
    if len(turn) == 1:
        encoded = turn[0].turn
    else:
        ordered = sorted(turn, key=_after_results)
        encoded = turn_of(turn[0].role, [fragment.blocks() for fragment in ordered])
    if mark:
        encoded = encoded[: -len(TURN_END) - 1] + mark + b"}" + TURN_END
    return encoded


def _after_results(fragment: Fragment) -> bool:
    return not fragment.is_result
