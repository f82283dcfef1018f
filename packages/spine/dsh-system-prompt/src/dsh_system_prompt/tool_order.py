"""The order of tool schemas in a request: stable, since caches depend on it."""

from collections.abc import Collection, Sequence
from typing import Final

from dsh_brand import utf16_key
from dsh_llm import ToolSchema

from .errors import ToolOrderError

UNLISTED: Final = "<unlisted-tools>"
"""Stands in a configured order for all tools that it does not name."""


def order_tools(
    schemas: Sequence[ToolSchema], order: Sequence[str] | None, known: Collection[str]
) -> tuple[ToolSchema, ...]:
    """Sort schemas by name, or as configured.

    Args:
        schemas: Duplicates keep their order among themselves.
        order: Names with `UNLISTED` once, or `None`.
        known: All names that exist, hidden ones too.

    Raises:
        ToolOrderError: A schema has the reserved name, or the order names tools nobody knows.
    """
    if any(schema.name == UNLISTED for schema in schemas):
        raise ToolOrderError(f"a tool cannot be named {UNLISTED!r}; the name is reserved")
    by_name = sorted(schemas, key=lambda schema: utf16_key(schema.name))
    if order is None:
        return tuple(by_name)
    unknown = [name for name in order if name != UNLISTED and name not in known]
    if unknown:
        raise ToolOrderError(
            f"tool_order names unknown tools {', '.join(unknown)}; known: "
            f"{', '.join(sorted(known, key=utf16_key)) or 'none'}"
        )
    ranks = {name: rank for rank, name in enumerate(order)}
    return tuple(sorted(by_name, key=lambda schema: ranks.get(schema.name, ranks[UNLISTED])))
