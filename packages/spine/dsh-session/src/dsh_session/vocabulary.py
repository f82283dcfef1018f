"""Which event types this build knows, and the classes registered for them."""

from collections.abc import Callable
from typing import Final, TypeVar

from dsh_session import events as _events
from dsh_session.events import SURFACE_EVENT_TYPES, SessionEventData

P = TypeVar("P", bound=SessionEventData)

KNOWN_SESSION_EVENT_TYPES: Final = frozenset(
    {
        *("turn/start", "turn/end", "step/start", "step/end"),
        *("system/message", "developer/message", "user/message"),
        *("assistant/message", "assistant/attempt", "tool/call", "tool/result"),
        *("request/header", "request/context", "session/end-seed", "todo/write"),
        *("model/selection", "agent/inbox/spliced", "agent-preset/selected"),
        *("approval/asked", "approval/decided", "approval/policy"),
        *("command/done", "command/run"),
        *("compaction/end", "compaction/prune", "compaction/start", "compaction/summary"),
        *("deliverables/presented", "feedback/message-delete", "feedback/message-put"),
        *("feedback/record", "goal/change", "hook/invoked", "hook/result", "image/offload"),
        *("llm/retry", "llm/retry-started", "permission/preset", "plan/mode", "sandbox/mode"),
        *("schedule/change", "session-log-deepseek/delivery-accepted"),
        *("session/title", "session/title-llm-request"),
        *("subagent/catalog", "subagent/descriptor", "subagent/model-selection-policy"),
        *("team/member", "team/message/delivered", "team/message/queued", "team/task"),
        *("tool-workflow/agent-end", "tool-workflow/agent-start"),
        *("tool-workflow/run-end", "tool-workflow/run-start"),
        *("tool/ptc-dispatch", "tool/ptc-dispatch-start"),
        *("web/deepseek-search-llm-request", "workspace/changes"),
    }
)
"""Every name of the shared vocabulary, whether or not the package that owns it is installed."""

RETIRED_SESSION_EVENT_TYPES: Final = frozenset({"tool/code-dispatch", "tool/code-dispatch-start"})
"""Names of the past: a required event of such a type is refused when it is read."""

MESSAGE_PROJECTION_EVENT_TYPES: Final = frozenset({"image/offload"})
"""Types of the shared vocabulary that change messages already in history."""

_classes: dict[str, type[SessionEventData]] = {}
_watchers: list[Callable[[], None]] = []


def register_session_event(cls: type[P]) -> type[P]:
    """Make `cls` the payload class of its `type`. Usable as a decorator; a second one replaces.

    Raises:
        TypeError: No event type; a new surface type: their set is closed; or a type that projects
            and must not, or the other way round.
    """
    name = getattr(cls, "type", None)
    if not isinstance(name, str) or not name:
        raise TypeError(f"{cls.__qualname__} names no event: give it `type: ClassVar[str]`")
    if cls.surface != (name in SURFACE_EVENT_TYPES):
        raise TypeError(f"{cls.__qualname__}: the set of surface event types is closed")
    if cls.projects and cls.surface:
        raise TypeError(f"{cls.__qualname__}: a surface event changes no other messages")
    if name in MESSAGE_PROJECTION_EVENT_TYPES and not cls.projects:
        raise TypeError(f"{cls.__qualname__}: {name!r} changes messages: give it `projects = True`")
    _classes[name] = cls
    for told in _watchers:
        told()
    return cls


def registered_class(event_type: str) -> type[SessionEventData] | None:
    """The payload class of an event type."""
    return _classes.get(event_type)


def registered_classes() -> dict[str, type[SessionEventData]]:
    """All payload classes by event type."""
    return dict(_classes)


def watch_registrations(told: Callable[[], None]) -> None:
    """Call `told` after each registration, for as long as the process lives."""
    _watchers.append(told)


def is_projecting_type(event_type: str) -> bool:
    """True if events of that type change messages before them, and this build can read them."""
    cls = _classes.get(event_type)
    return cls is not None and cls.projects


def is_known_event_type(event_type: str) -> bool:
    """True if this build may read a required event of that type."""
    return event_type in KNOWN_SESSION_EVENT_TYPES or event_type in _classes


for _cls in (
    _events.TurnStart,
    _events.TurnEnd,
    _events.StepStart,
    _events.StepEnd,
    _events.SystemMessageEvent,
    _events.DeveloperMessageEvent,
    _events.UserMessageEvent,
    _events.AssistantMessageEvent,
    _events.AssistantAttempt,
    _events.ToolCallEvent,
    _events.ToolResultEvent,
    _events.RequestHeaderEvent,
    _events.RequestContext,
    _events.EndSeed,
    _events.TodoWrite,
    _events.ModelSelectionEvent,
    _events.InboxSpliced,
):
    register_session_event(_cls)
