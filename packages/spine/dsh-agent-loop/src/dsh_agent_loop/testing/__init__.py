"""For tests of agents: a scripted model, a recorder, a stack around one agent, a simulator."""

from .checks import EventJudge, log_problems, view_problems
from .clock import ManualClock
from .recording import Recorder, line_of, text_of
from .simulation import SimulationFailedError, SimulationReport, simulate
from .stack import LoopStack, ScriptedModel, Step, call, cut, fail, loop_stack, mount_loop, say
from .store import SimulatedDisk, SimulatedStore

__all__ = [
    "EventJudge",
    "LoopStack",
    "ManualClock",
    "Recorder",
    "ScriptedModel",
    "SimulatedDisk",
    "SimulatedStore",
    "SimulationFailedError",
    "SimulationReport",
    "Step",
    "call",
    "cut",
    "fail",
    "line_of",
    "log_problems",
    "loop_stack",
    "mount_loop",
    "say",
    "simulate",
    "text_of",
    "view_problems",
]
