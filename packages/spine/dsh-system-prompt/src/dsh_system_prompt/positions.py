"""Where the shipped sections and contexts stand. One table, read by name."""

from types import MappingProxyType
from typing import Final

SECTION_ORDERS: Final = MappingProxyType(
    {
        "harness:identity": -1000,
        "deployment:persona": 0,
        "tool:plan": 500,
        "tools:ptc-only": 800,
        "tool:bash": 1000,
        "tool:read": 1100,
        "tool:write": 1200,
        "tool:edit": 1300,
        "tool:glob": 1400,
        "tool:grep": 1500,
        "tool:jobs": 1600,
        "tool:web_search": 2000,
        "tool:web_fetch": 2100,
        "tool:lsp": 2200,
        "tool:goal": 2400,
        "tool:workflow": 2600,
        "tool:subagent": 2800,
        "tools:sdk": 5000,
        "structured-output": 9900,
    }
)

CONTEXT_ORDERS: Final = MappingProxyType(
    {"sandbox:policy": 110, "approval:policy": 115, "subagent:delegation": 120}
)


def section_order(name: str) -> int:
    """Position of a shipped section.

    Raises:
        KeyError: No such section; a new one may choose any finite number.
    """
    return SECTION_ORDERS[name]


def context_order(name: str) -> int:
    """Position of a shipped context.

    Raises:
        KeyError: No such context; a new one may choose any finite number.
    """
    return CONTEXT_ORDERS[name]
