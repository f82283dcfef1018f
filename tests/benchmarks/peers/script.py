"""What all sides share: the texts, the tool, and the model in the process.

Each side gives `new()`, which makes an agent and its conversation, and that conversation is a
function: a question goes in, the text of the answer comes out, after each delta has passed through
the caller. A side stands over a URL, where a server answers chat completions, or over a `Script`.
"""

import importlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from dsh_brand import JsonValue

QUESTION = "What did we say about point {} of the plan, and what is to be done about it next?"
ANSWER = (
    "We said that it can wait until the others are through with theirs, and that somebody "
    "looks at it again at the end of the week."
)
DELTAS = [word + " " for word in ANSWER.split(" ")]
BOUND = 100
"""Limits of steps that some peers have, wide enough for every turn here."""

Talk = Callable[[str], Awaitable[str]]
New = Callable[[], Awaitable[Talk]]


class Script:
    """The model in the process: a text in deltas, or a tool call, `calls` times in a row."""

    def __init__(self) -> None:
        self.calls = 0
        self._made = 0

    def call(self) -> str | None:
        """The id of the next tool call, or nothing when it is time for the text."""
        if not self.calls:
            return None
        self.calls -= 1
        self._made += 1
        return f"call_{self._made}"


Source = str | Script


def add(n: int) -> str:
    """Add one to a number.

    Args:
        n: The number.
    """
    return str(n + 1)


PARAMETERS: Mapping[str, JsonValue] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "description": "The number."}},
    "required": ["n"],
}
ARGUMENTS = '{"n": 1}'


def peer(module: str) -> Any:
    """A module of a peer; `Any`, since the type checker runs where no peer is installed."""
    return importlib.import_module(module)


def subclass(base: Any, **members: object) -> Any:
    """A fake of a peer's class, which the type checker does not know."""
    return type("Fake", (base,), members)
