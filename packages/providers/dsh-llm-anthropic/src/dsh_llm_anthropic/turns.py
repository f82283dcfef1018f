"""Messages to turns: merged, alternating, results first, prompts behind them (L138, L139, L176)."""

from collections.abc import Sequence

from .fragments import TURN_END, Fragment, turn_of

NO_CONTENT = Fragment("user", turn_of("user", (b'{"type":"text","text":"(no content)"}',)))
"""The user turn that the protocol wants before anything else."""

Turn = list[Fragment]
"""Consecutive messages of one role, at least one; a prompt always stands alone."""


def turns_of(fragments: Sequence[Fragment]) -> list[Turn] | None:
    """The turns of a request.

    Returns:
        `None` if a prompt stands where no user turn does, so that the protocol cannot express it.
    """
    turns: list[Turn] = []
    prompts: list[Turn] = []
    last = ""
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
            elif not turns:
                turns.append([NO_CONTENT])
        if role == last:
            turns[-1].append(fragment)
        else:
            turns.append([fragment])
            last = role
    if prompts and last != "user":
        return None
    return [*turns, *prompts] or [[NO_CONTENT]]


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
