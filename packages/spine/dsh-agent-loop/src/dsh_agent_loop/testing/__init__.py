"""For tests of agents: a scripted model, a recorder, a stack around one agent, a simulator."""

from .recording import Recorder, line_of, text_of
from .stack import LoopStack, ScriptedModel, Step, call, cut, fail, loop_stack, say

__all__ = [
    "LoopStack",
    "Recorder",
    "ScriptedModel",
    "Step",
    "call",
    "cut",
    "fail",
    "line_of",
    "loop_stack",
    "say",
    "text_of",
]
