"""Mounts the spine of an agent stack in the right order, and asks it things."""

from ._spine import PARTS, SpineConfigError, SpineContext, spine
from .budget import BudgetConfig, BudgetConfigError, BudgetExceeded, Extend, budget
from .running import RunError, RunResult, ask, run, run_async
from .watching import TurnEvent, TurnEvents

__all__ = [
    "PARTS",
    "BudgetConfig",
    "BudgetConfigError",
    "BudgetExceeded",
    "Extend",
    "RunError",
    "RunResult",
    "SpineConfigError",
    "SpineContext",
    "TurnEvent",
    "TurnEvents",
    "ask",
    "budget",
    "run",
    "run_async",
    "spine",
]
