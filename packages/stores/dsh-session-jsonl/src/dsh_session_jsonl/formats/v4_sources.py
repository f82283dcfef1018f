"""Message sources and content blocks of format 4.

Upstream: packages/session/session-format-v3-to-v4/src/sources.ts.
"""

from typing import Final

from dsh_brand import JsonValue
from dsh_session_jsonl.formats.rows import Json, Row, broken, cannot
from dsh_session_jsonl.formats.vocabulary import FOREIGN_PREFIX

_KINDS: Final = {
    "compact": "compact-checkpoint",
    "tools-code-mode": "ptc-mode",
    "tools-ptc": "ptc-mode",
    "dsh-compaction-basic": "compact-basic",
}
_PROMPT_OWNER: Final = "@deepseek-ai/dsh-system-prompt"
_OWN_NAME: Final = frozenset(
    {
        *("agent-instructions", "session-reference", "team-message", "goal", "skill-invocation"),
        *("skill-catalog", "coordinator", "subagent-report", "subagent-settled", "webhook"),
        *("agent-message", "model-selection", "plan-mode", "time-context", "tmux-context"),
        *("user-approval", "repeat-tool-reminder", "tool-cordis", "cordis-host-runner"),
        *("tool-goal", "tool-jobs", "hooks-codex", "hooks-claude-code", "schedule"),
        "dsh-session-title-llm",
    }
)
_BLOCKS: Final = frozenset(
    {"text", "reasoning", "tool-call", "tool-addition", "tool-removal", "image", "file"}
)
_RETIRED_BLOCK: Final = "tool-result"


def native_message(row: Row, message: Json) -> Json:
    """The message with its source and its blocks in the words of format 4.

    Raises:
        CannotConvertError: It holds a tool result where format 4 has none.
        BrokenRowError: A plugin source without the plugin's name.
    """
    changes: Json = {}
    source, content = message.get("source"), message.get("content")
    if isinstance(source, dict) and source.get("kind") == "plugin":
        changes["source"] = _source(row, source, message.get("role"))
    if isinstance(content, list):
        changes["content"] = native_blocks(row, content)
    return {**message, **changes}


def native_blocks(row: Row, blocks: list[JsonValue]) -> list[JsonValue]:
    """The blocks, those of unknown types under the prefix of foreign ones.

    Raises:
        CannotConvertError: One is a tool result, which format 4 does not nest.
    """
    return [_block(row, block) for block in blocks]


def native_record(row: Row, record: JsonValue) -> JsonValue:
    """A record of a compact stream, what it says of blocks in the words of format 4."""
    chunk = record.get("chunk") if isinstance(record, dict) else None
    if not isinstance(record, dict) or not isinstance(chunk, dict):
        return record
    if chunk.get("type") == "block-start" and isinstance(chunk.get("blockType"), str):
        chunk = {**chunk, "blockType": _tag(str(chunk["blockType"]))}
    elif chunk.get("type") == "block-end" and isinstance(chunk.get("block"), dict):
        chunk = {**chunk, "block": _block(row, chunk["block"])}
    return {**record, "chunk": chunk}


def _source(row: Row, source: Json, role: JsonValue) -> Json:
    plugin = source.get("plugin")
    if not isinstance(plugin, str) or not plugin:
        raise broken(row, "a message source of kind 'plugin' names the plugin")
    rest = {key: value for key, value in source.items() if key not in ("kind", "plugin")}
    return {"kind": _kind(plugin, role), **rest}


def _kind(plugin: str, role: JsonValue) -> str:
    if plugin == _PROMPT_OWNER:
        return "system-prompt" if role == "system" else "runtime-context"
    if plugin in _OWN_NAME:
        return plugin
    return _KINDS.get(plugin, f"{FOREIGN_PREFIX}{plugin}")


def _block(row: Row, block: JsonValue) -> JsonValue:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(block, dict) or not isinstance(kind, str) or kind in _BLOCKS:
        return block
    if kind == _RETIRED_BLOCK:
        raise cannot(row, "it holds a tool result beside other content, or inside another one")
    return {**block, "type": _tag(kind)}


def _tag(kind: str) -> str:
    return kind if kind in _BLOCKS else f"{FOREIGN_PREFIX}{kind}"
