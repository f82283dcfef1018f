"""The event types of each old format. Frozen: what today's packages know has no say here."""

from typing import Final

_COMMON: Final = frozenset(
    {
        *("turn/start", "turn/end", "step/start", "step/end"),
        *("user/message", "assistant/message", "tool/call", "tool/result"),
        *("request/header", "request/context", "session/end-seed", "todo/write"),
        *("model/selection", "agent/inbox/spliced", "agent-preset/selected"),
        *("approval/asked", "approval/decided", "approval/policy"),
        *("command/done", "command/run"),
        *("compaction/end", "compaction/prune", "compaction/start", "compaction/summary"),
        *("deliverables/presented", "feedback/message-delete", "feedback/message-put"),
        *("feedback/record", "goal/change", "hook/invoked", "hook/result"),
        *("llm/retry", "llm/retry-started", "permission/preset", "plan/mode", "sandbox/mode"),
        *("schedule/change", "session-log-deepseek/delivery-accepted"),
        *("session/title", "session/title-llm-request"),
        *("subagent/catalog", "subagent/descriptor", "subagent/model-selection-policy"),
        *("team/member", "team/message/delivered", "team/message/queued", "team/task"),
        *("tool-workflow/agent-end", "tool-workflow/agent-start"),
        *("tool-workflow/run-end", "tool-workflow/run-start"),
        *("web/deepseek-search-llm-request", "workspace/changes"),
    }
)
_CODE: Final = frozenset({"tool/code-dispatch", "tool/code-dispatch-start"})
_FORMAT_3: Final = frozenset(
    {
        *("assistant/attempt", "system/message", "developer/message", "image/offload"),
        *("tool/ptc-dispatch", "tool/ptc-dispatch-start"),
    }
)
_FORMAT_0: Final = frozenset(
    {
        *("steering/message", "request/header-delta", "mode/set"),
        *("compact/end", "compact/prune", "compact/start", "compact/summary"),
    }
)

EVENT_TYPES: Final = (
    _COMMON | _CODE | {"assistant/chunk"} | _FORMAT_0,
    _COMMON | _CODE | {"assistant/chunk"},
    _COMMON | _CODE | {"assistant/attempt"},
    _COMMON | _FORMAT_3,
)
"""By format version: the types that have a meaning there."""

FOREIGN_PREFIX: Final = "plugin:"
"""Stands before the types, source kinds and block types of plugins that no format knew."""
