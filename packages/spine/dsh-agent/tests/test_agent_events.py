"""The declared events, what they carry, and to whom they go."""

from typing import cast, get_type_hints

import pytest

import dsh_agent
from dsh_agent import (
    Agent,
    AgentStatusChanged,
    ConfigStartFailed,
    InboxClaimed,
    InboxDiscarded,
    InboxInserted,
)
from dsh_cordis import Context, Event, ScopeError, Target, create_scope
from dsh_session import Session, SessionId

MODES: dict[str, tuple[str, set[str]]] = {
    "agent/created": ("serial", {"source", "signal"}),
    "agent/session-start": ("emit", {"source"}),
    "agent/disposed": ("emit", set()),
    "agent/status": ("emit", {"status"}),
    "agent/inbox/inserted": ("emit", {"message"}),
    "agent/inbox/discarded": ("emit", {"message"}),
    "agent/inbox/claimed": ("emit", {"message", "turn"}),
    "agent/assistant-stream": ("emit", {"frame"}),
    "agent/error": ("emit", {"turn", "step", "error"}),
    "agent/abandoned": ("emit", {"work"}),
    "agent/pre-step": (
        "waterfall",
        {"messages", "turn", "step", "signal", "selection", "request_owed"},
    ),
    "agent/request": ("waterfall", {"turn", "step", "signal"}),
    "agent/request-error": (
        "waterfall",
        {"turn", "step", "provider", "failure", "retry_policy", "signal"},
    ),
    "agent/turn-stopping": ("serial", {"turn", "signal"}),
}


class Puppet:
    """Just enough of an agent to be the subject of an event."""

    def __init__(self, name: str) -> None:
        self.id = SessionId(name)
        self.session = Session.create(self.id)


def puppet(name: str) -> Agent:
    return cast("Agent", Puppet(name))


def declared() -> dict[str, type[Event]]:
    classes = [value for value in vars(dsh_agent).values() if isinstance(value, type)]
    events = [cls for cls in classes if issubclass(cls, Event) and isinstance(cls, type)]
    return {cls.name: cls for cls in events}


def test_A41_every_event_has_its_mode_its_fields_and_its_agent() -> None:
    found = declared()
    failed = found.pop("agent-loop/config-start-failed")
    assert (failed, failed.subject) == (ConfigStartFailed, None)
    assert set(failed.__struct_fields__) == {"session_id", "error"}
    assert found.keys() == MODES.keys()
    for name, (mode, fields) in MODES.items():
        cls = found[name]
        assert (cls.mode, cls.subject) == (mode, "agent"), name
        assert set(cls.__struct_fields__) == {"agent", *fields}, name
        assert get_type_hints(cls)["agent"] is Agent, name


def test_A27_inbox_notifications_carry_nothing_else() -> None:
    assert InboxInserted.__struct_fields__ == ("agent", "message")
    assert InboxDiscarded.__struct_fields__ == ("agent", "message")
    assert InboxClaimed.__struct_fields__ == ("agent", "message", "turn")


async def test_A41_A42_an_event_goes_to_the_scope_of_its_own_agent() -> None:
    async with Context() as ctx:
        mine, other = puppet("mine"), puppet("other")
        heard: list[str] = []
        for agent in (mine, other):
            scope = create_scope(ctx, agent)
            name = str(agent.id)
            scope.ctx.on(AgentStatusChanged, lambda event, name=name: heard.append(name))
        ctx.emit(AgentStatusChanged(agent=mine, status="running"))
        assert heard == ["mine"]
        with pytest.raises(ScopeError):
            ctx.emit(AgentStatusChanged(agent=mine, status="idle"), target=Target(other))
        assert heard == ["mine"]
