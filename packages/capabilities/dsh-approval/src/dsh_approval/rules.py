"""Rules: which calls run, are denied, or need approval, by tool name and arguments."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from dsh_brand import JsonObject, JsonValue, Wire, encode_json, freeze_object

from ._patterns import allows, restricts

RuleAction: TypeAlias = Literal["allow", "deny", "ask"]

ACTIONS: Final[frozenset[str]] = frozenset(get_args(RuleAction))


class ApprovalRule(Wire, frozen=True, kw_only=True):
    """A rule. Patterns are those of shells: `*`, `?`, `[a-z]`; they match whole texts."""

    tool: str
    """Pattern of tool names."""
    action: str
    """`allow` answers a question beforehand, `deny` refuses the call, `ask` asks for approval."""
    arguments: JsonObject | None = None
    """Patterns by argument name, all of which must match; an argument that is missing does not.

    An argument that is no text is matched as compact JSON. In a rule that allows, wildcards stand
    for plain text: without control characters, `..` and, but in web addresses, operators of a
    shell. Other rules match also where one command of a `command`, or another spelling of a path,
    does.
    """
    reason: str | None = None
    """For the model where the rule denies, for the person where it asks."""

    def __post_init__(self) -> None:
        if self.arguments is not None:
            msgspec.structs.force_setattr(self, "arguments", freeze_object(self.arguments))

    def matches(self, tool_name: str, arguments: JsonValue, cwd: str | None = None) -> bool:
        """Whether the rule is about a call; `cwd` is where its relative paths start."""
        if not fnmatchcase(tool_name, self.tool):
            return False
        if not self.arguments:
            return True
        given = arguments if isinstance(arguments, Mapping) else {}
        return all(
            name in given
            and isinstance(pattern, str)
            and self._fits(pattern, name, _text(given[name]), cwd)
            for name, pattern in self.arguments.items()
        )

    def _fits(self, pattern: str, name: str, text: str, cwd: str | None) -> bool:
        if self.action == "allow":
            return allows(pattern, text)
        return restricts(pattern, name, text, cwd)


def first_match(
    rules: Iterable[ApprovalRule],
    tool_name: str,
    arguments: JsonValue,
    cwd: str | None = None,
) -> ApprovalRule | None:
    """The first rule about a call; rules with an unknown action are passed over."""
    for rule in rules:
        if rule.action in ACTIONS and rule.matches(tool_name, arguments, cwd):
            return rule
    return None


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else encode_json(value).decode("utf-8", "replace")
