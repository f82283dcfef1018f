"""What reaches a terminal, and what reaches a file."""

import io
from typing import Final

import pytest
from typing_extensions import override

from dsh_agent import AgentAssistantStream
from dsh_agent_loop.testing import ScriptedModel, say
from dsh_cli.output import TextOutput, visible
from dsh_cordis import Context
from dsh_spine import spine

ATTACK: Final = "a\x1b]0;owned\x07\x9b2J\u202e\u2066b\r\n\tc\x7f é"


class Terminal(io.StringIO):
    """A text stream that claims to be a terminal."""

    @override
    def isatty(self) -> bool:
        return True


def test_what_a_terminal_would_obey_is_written_out() -> None:
    assert visible(ATTACK) == "a\\x1b]0;owned\\x07\\x9b2J\\u202e\\u2066b\\x0d\n\tc\\x7f é"


@pytest.mark.parametrize("out", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_notes_obey_nothing(out: io.StringIO) -> None:
    notes = Terminal()
    TextOutput(out, notes).failure("bad \x1b[2J key", "NO\x1b")
    assert "bad \\x1b[2J key [NO\\x1b]" in notes.getvalue()


@pytest.mark.parametrize(
    ("out", "shown"),
    [(Terminal(), visible(ATTACK)), (io.StringIO(), ATTACK)],
    ids=["terminal", "file"],
)
async def test_an_answer_is_exact_unless_a_terminal_reads_it(out: io.StringIO, shown: str) -> None:
    out.truncate(0)
    out.seek(0)
    output = TextOutput(out, io.StringIO())
    async with Context() as ctx:
        _ = ctx.plugin(spine)
        await ctx.settled()
        ctx.llm.register_adapter(["test"], ScriptedModel(say(ATTACK)))
        ctx.on(AgentAssistantStream, output.frame)
        handle = await ctx.agents.create(provider="test", model="m")
        handle.agent.followup("Say it.")
        await handle.agent.when_idle()
    assert out.getvalue() == shown + "\n"
