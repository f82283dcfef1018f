"""Format 0 to 1: old spellings of the same events. No seq and no time changes.

Upstream: packages/session/session-format-v0-to-v1/src/migration.ts.
"""

from collections.abc import Iterator
from typing import Final

from dsh_brand import JsonValue
from dsh_session_jsonl.formats.rows import Json, Row, broken, cannot, fields, object_of
from dsh_session_jsonl.formats.v0_messages import MessageWrapper

_UNSUPPORTED: Final = ("request/header-delta", "mode/set")
_COMPACTION: Final = ("compaction/start", "compaction/summary", "compaction/end")


class ZeroToOne:
    """The edge from format 0 to 1."""

    def __init__(self, header: Json) -> None:
        self._session = header.get("id")
        self._messages = MessageWrapper(self._session)
        self._retries: dict[tuple[str, ...], str] = {}
        self._last_retry: str | None = None
        self._compaction: str | None = None

    @staticmethod
    def header(header: Json) -> Json:
        """The header in format 1."""
        return {**header, "version": 1}

    def push(self, row: Row) -> Iterator[Row]:
        """Convert the next row."""
        if row.type in _UNSUPPORTED:
            raise cannot(row, "later formats have nothing that says the same")
        if row.type.startswith("compact/"):
            row = row._replace(type=row.type.replace("compact/", "compaction/", 1))
        yield self._correlated(self._messages.wrap(_respelled(row)))

    def finish(self) -> Iterator[Row]:
        """Nothing is held back."""
        return iter(())

    def _correlated(self, row: Row) -> Row:
        """The row with the ids that tie it to others, where it comes from before them."""
        if row.type in ("llm/retry", "llm/retry-started"):
            return row._replace(data=self._retry(row, fields(row)))
        if row.type in _COMPACTION:
            return row._replace(data=self._compacting(row, fields(row)))
        if row.type == "user/message" and self._compaction is not None:
            return row._replace(data=_checkpoint(fields(row), self._compaction))
        if row.type == "turn/start":
            self._retries, self._last_retry = {}, None
        if row.type == "session/end-seed":
            self._compaction = None
        return row

    def _retry(self, row: Row, data: Json) -> Json:
        if "retryId" in data:
            self._last_retry = str(data["retryId"])
            return data
        if row.type == "llm/retry":
            keys = ("turn", "step", "provider", "policyKey")
            chain = tuple(repr(data.get(key)) for key in keys)
            name = f"legacy-retry:{self._session}:{row.seq}"
            self._last_retry = self._retries.setdefault(chain, name)
        if self._last_retry is None:
            raise broken(row, "a retry starts, and none was announced")
        return {**data, "retryId": self._last_retry}

    def _compacting(self, row: Row, data: Json) -> Json:
        if row.type == "compaction/start":
            known = data.get("compactionId", f"legacy-compaction:{self._session}:{row.seq}")
            self._compaction = known if isinstance(known, str) and known else None
        group = self._compaction
        if row.type == "compaction/end":
            self._compaction = None
        if group is None or "compactionId" in data:
            return data
        return {**data, "compactionId": group}


def _checkpoint(data: Json, group: str) -> Json:
    source = data.get("source")
    if not isinstance(source, dict) or source.get("plugin") != "compact":
        return data
    if source.get("kind") != "plugin" or "compactionId" in source:
        return data
    return {**data, "source": {**source, "compactionId": group}}


def _respelled(row: Row) -> Row:
    """The row without spellings that were given up before format 1."""
    match row.type:
        case "turn/start":
            return row._replace(data=_without(fields(row), "trigger"))
        case "turn/end":
            data = fields(row)
            reason = _end_reason(row, object_of(row, data.get("reason"), "reason"))
            return row._replace(data={**data, "reason": reason})
        case "request/header":
            return row._replace(data=_request_header(row, fields(row)))
        case "subagent/descriptor" if (data := fields(row)).get("version") == 2:
            return row._replace(data={**data, "version": 3})
        case _:
            return row


def _end_reason(row: Row, reason: Json) -> Json:
    match reason.get("kind"):
        case "aborted" if "reason" not in reason:
            return {**reason, "reason": {"kind": "legacy"}}
        case "disposed":
            return {"kind": "aborted", "reason": {"kind": "disposed"}}
        case "error":
            return _error_reason(row, reason)
        case _:
            return reason


def _error_reason(row: Row, reason: Json) -> Json:
    old = {"step", "failure", "message", "code"} & reason.keys()
    if "error" in reason and not old:
        return reason
    if reason.keys() == {"kind", "step", "failure"}:
        return {"kind": "error", "error": reason["failure"]}
    if reason.keys() - {"code"} == {"kind", "step", "message"}:
        error: dict[str, JsonValue] = {
            "message": reason["message"],
            "code": reason.get("code", "UNKNOWN"),
        }
        return {"kind": "error", "error": error}
    raise broken(row, "an error has error, or step with failure, or step with message and code?")


def _request_header(row: Row, data: Json) -> Json:
    if data.get("reason") == "fallback":
        raise cannot(row, "the reason 'fallback' has no meaning in later formats")
    header = object_of(row, data.get("header"), "header")
    return {**data, "header": _without(header, "messagePrefix")}


def _without(data: Json, *keys: str) -> Json:
    return {key: value for key, value in data.items() if key not in keys}
