"""For tests of tools: run one through the whole pipeline, check it, and see what runs meanwhile.

Needs no test framework: ``async with tool_bench(my_tool) as bench:`` and
``await bench.run("my_tool", x=1)``; ``await check_tool(my_tool, {"x": 1})``.
"""

from ._bench import (
    AgentStub,
    CensusEntry,
    RecordingCensus,
    ToolBench,
    code_of,
    text_of,
    tool_bench,
)
from ._conformance import ToolCheckError, check_tool

__all__ = [
    "AgentStub",
    "CensusEntry",
    "RecordingCensus",
    "ToolBench",
    "ToolCheckError",
    "check_tool",
    "code_of",
    "text_of",
    "tool_bench",
]
