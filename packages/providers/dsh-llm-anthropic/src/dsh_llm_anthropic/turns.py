"""Messages to turns: merged, alternating, results first, prompts behind them (L138, L139, L176)."""

from collections.abc import Iterator, Sequence

from .fragments import Fragment, Role, joined

NO_CONTENT = b'{"type":"text","text":"(no content)"}'
"""The user turn that the protocol wants before anything else."""


class Turn:
    """Consecutive messages of one role."""

    __slots__ = ("content", "results", "role")

    def __init__(self, role: Role) -> None:
        self.role = role
        self.results: list[bytes] = []
        self.content: list[bytes] = []

    def add(self, fragment: Fragment) -> None:
        """Take a message in."""
        self.results += fragment.results
        self.content += fragment.content

    def encoded(self, mark: bytes = b"") -> bytes:
        """The turn as JSON, with a cache mark on its last block."""
        blocks = self.results + self.content
        if mark:
            blocks[-1] = blocks[-1][:-1] + mark + b"}"
        return b'{"role":"%b","content":%b}' % (self.role.encode(), joined(blocks))


def turns_of(fragments: Sequence[Fragment]) -> list[Turn] | None:
    """The turns of a request.

    Returns:
        `None` if a prompt stands where no user turn does, so that the protocol cannot express it.
    """
    turns: list[Turn] = []
    prompts: list[Turn] = []
    for turn in _merged(fragments):
        if turn.role == "system":
            prompts.append(turn)
            continue
        if turn.role == "assistant":
            if not _flush(turns, prompts):
                return None
            if not turns:
                turns.append(_no_content())
        if turns and turns[-1].role == turn.role:
            turns[-1].results += turn.results
            turns[-1].content += turn.content
        else:
            turns.append(turn)
    if not _flush(turns, prompts):
        return None
    return turns or [_no_content()]


def _flush(turns: list[Turn], prompts: list[Turn]) -> bool:
    """Put the prompts of a stretch behind its user turn; false if it has none."""
    if prompts and (not turns or turns[-1].role != "user"):
        return False
    turns += prompts
    prompts.clear()
    return True


def _merged(fragments: Sequence[Fragment]) -> Iterator[Turn]:
    turn: Turn | None = None
    for fragment in fragments:
        if not fragment.content and not fragment.results:
            continue
        if turn is not None and (turn.role != fragment.role or turn.role == "system"):
            yield turn
            turn = None
        if turn is None:
            turn = Turn(fragment.role)
        turn.add(fragment)
    if turn is not None:
        yield turn


def _no_content() -> Turn:
    turn = Turn("user")
    turn.content.append(NO_CONTENT)
    return turn
