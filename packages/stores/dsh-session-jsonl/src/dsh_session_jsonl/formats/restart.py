"""Turns that an old harness left open when it was started again."""

from dsh_session_jsonl.formats.rows import Row, cannot, fields, made, number_of


class RestartRepair:
    """Follows the turns of a log and ends one that the next one overtook."""

    def __init__(self) -> None:
        self._turn: int | None = None
        self._in_step = False
        self._queued = False

    def before(self, row: Row) -> Row | None:
        """The ``turn/end`` that must stand before `row`, if one is missing.

        Raises:
            CannotConvertError: A turn starts inside another, and not in the one known way.
        """
        end = None
        if row.type == "turn/start":
            end = self._start(row)
        elif row.type == "turn/end":
            self._turn = None
        elif row.type in ("step/start", "step/end"):
            self._in_step = row.type == "step/start"
        self._queued = _queues_a_turn(row)
        return end

    def _start(self, row: Row) -> Row | None:
        turn = number_of(row, fields(row), "turn")
        open_turn, self._turn = self._turn, turn
        in_step, self._in_step = self._in_step, False
        if open_turn is None:
            return None
        if in_step or not self._queued or turn != open_turn + 1:
            raise cannot(row, f"a turn starts while turn {open_turn} is open")
        return made(row, "turn/end", {"turn": open_turn, "reason": {"kind": "interrupted"}})


def _queues_a_turn(row: Row) -> bool:
    data = row.data
    if row.type != "agent/inbox/spliced" or not isinstance(data, dict):
        return False
    return data.get("target") == "next-turn" and bool(data.get("inserted"))
