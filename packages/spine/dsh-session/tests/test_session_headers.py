"""Session headers, request headers and the tool history (S10, S58-S71, S119)."""

from typing import Any

import pytest

from dsh_llm import (
    AdapterDefaults,
    LlmCallConfig,
    Message,
    MessageId,
    ToolAdditionBlock,
    ToolRemovalBlock,
    ToolSchema,
)
from dsh_llm.sources import ToolRegistrySource
from dsh_session import (
    DeveloperMessageEvent,
    FormatVersionError,
    InvalidHeaderError,
    RequestContext,
    RequestHeader,
    RequestHeaderEvent,
    Session,
    SessionHeader,
    SessionId,
    SurfaceError,
    canonical_header,
    fold_request_header,
    header_equals,
    header_from_json,
    header_to_json,
)
from dsh_session.testing import new_session

STORED: dict[str, Any] = {  # JSON
    "version": 4,
    "id": "a",
    "createdAt": 5,
    "cwd": "/w",
    "parentSession": "p",
    "isSeeded": True,
    "origin": "subagent",
    "delegationDepth": 2,
    "agentPreset": "x",
}


def test_S70_header_survives_a_round_trip() -> None:
    header = header_from_json(STORED)
    assert header_to_json(header) == STORED
    assert list(header_to_json(header)) == list(STORED)
    assert header.parent_session == "p"


@pytest.mark.parametrize(
    "change",
    [
        {"id": ""},
        {"createdAt": -1},
        {"createdAt": True},
        {"createdAt": 1.5},
        {"cwd": "w"},
        {"isSeeded": 1},
        {"origin": "fork"},
        {"delegationDepth": -1},
        {"agentPreset": 1},
        {"seedLength": 0},
        {"parentSession": None},
        {"version": "4"},
    ],
)
def test_S70_wrong_values_are_refused(change: dict[str, object]) -> None:
    with pytest.raises(InvalidHeaderError):
        header_from_json({**STORED, **change})


def test_S70_construction_refuses_wrong_values() -> None:
    with pytest.raises(InvalidHeaderError, match="cwd must be an absolute path, not 'w'"):
        SessionHeader(id=SessionId("a"), created_at=0, cwd="w")
    assert SessionHeader(id=SessionId("a"), created_at=0, cwd="C:\\w").cwd == "C:\\w"


@pytest.mark.parametrize(("version", "advice"), [(5, "upgrade"), (3, "import")])
def test_S119_version_is_looked_at_first(version: int, advice: str) -> None:
    with pytest.raises(FormatVersionError, match=advice) as caught:
        header_from_json({"version": version, "nonsense": 1})
    assert caught.value.newer is (version > 4)


def config(**changes: object) -> LlmCallConfig:
    return LlmCallConfig(**{"provider": "p", "model": "m", **changes})  # type: ignore[arg-type]  # fields by name


def schema(name: str, text: str = "d", **properties: object) -> ToolSchema:
    parameters = {"type": "object", "properties": properties}
    return ToolSchema(name=name, description=text, parameters=parameters)  # type: ignore[arg-type]  # frozen by the class


def test_S58_canonical_header_drops_what_is_empty() -> None:
    bare = RequestHeader(config=config())
    assert canonical_header(RequestHeader(config=config(), tools=())) == bare
    assert (
        canonical_header(RequestHeader(config=config(), adapter_defaults=AdapterDefaults())) == bare
    )
    full = RequestHeader(config=config(), tools=(schema("a"),))
    assert canonical_header(full) is full


def test_S58_fold_takes_the_last_snapshot_whole() -> None:
    session = new_session()
    start = RequestHeader(config=config(model="start"))
    assert fold_request_header(session.events, start) is start
    log_header(session, "initial", schema("a"))
    session.append(RequestHeaderEvent(header=RequestHeader(config=config()), reason="change"))
    assert fold_request_header(session.events) == RequestHeader(config=config())
    assert session.request_header() == RequestHeader(config=config())


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        pytest.param({}, {"tools": ()}, True, id="absent-and-empty-tools"),
        pytest.param({"config": config(stop=())}, {}, False, id="absent-and-empty-stop"),
        pytest.param({"tools": (schema("a"),)}, {"tools": (schema("a"),)}, True, id="same-tools"),
        pytest.param(
            {"tools": (schema("a", x=1, y=2),)},
            {"tools": (schema("a", y=2, x=1),)},
            False,
            id="key-order",
        ),
        pytest.param(
            {"tools": (schema("a"), schema("b"))},
            {"tools": (schema("b"), schema("a"))},
            False,
            id="tool-order",
        ),
        pytest.param(
            {"config": config(max_tokens=1), "adapter_defaults": AdapterDefaults(max_tokens=True)},
            {"config": config(max_tokens=1)},
            False,
            id="markers",
        ),
    ],
)
def test_S59_header_equals(
    left: dict[str, Any], right: dict[str, Any], equal: bool
) -> None:  # fields by name
    first, second = ({"config": config(), **keys} for keys in (left, right))
    assert header_equals(RequestHeader(**first), RequestHeader(**second)) is equal


def test_S60_folds_are_none_first_and_clear_what_a_later_record_lacks() -> None:
    session = new_session()
    assert session.request_header() is None
    assert session.request_context() is None
    assert session.tool_history() is None
    session.append(RequestContext(provider="p", model="m", context_window=5))
    session.append(RequestContext(provider="p", model="m"))
    context = session.request_context()
    assert context is not None
    assert context.context_window is None


def log_header(session: Session, reason: str, *tools: ToolSchema, series: bool = False) -> int:
    header = RequestHeader(config=config(), tools=tools or None)
    data = RequestHeaderEvent(header=header, reason=reason, starts_series=series or None)  # type: ignore[arg-type]  # one of the four
    return session.append(data).seq


def log_change(session: Session, header_seq: int | None, add: str = "", remove: str = "") -> None:
    added = (ToolAdditionBlock(tool_name=add),) if add else ()
    removed = (ToolRemovalBlock(tool_name=remove),) if remove else ()
    message = Message(
        id=MessageId(f"d{session.seq}"),
        role="developer",
        content=(*added, *removed),
        source=ToolRegistrySource(),
    )
    data = DeveloperMessageEvent(
        turn=1, step=1, message=message, header_seq=header_seq if add else None
    )
    session.append(data, surface_op="append")


def history(session: Session) -> tuple[list[str], list[list[str]]]:
    found = session.tool_history()
    assert found is not None
    names = [tool.name for tool in found.tools]
    return names, [[tool.name for tool in update.additions] for update in found.updates]


def test_S65_tool_history_follows_additions_and_removals() -> None:
    session = new_session()
    log_header(session, "initial", schema("a"))
    assert history(session) == (["a"], [])
    seq = log_header(session, "change", schema("a"), schema("b"))
    log_change(session, seq, add="b")
    assert history(session) == (["a"], [["b"]])
    seq = log_header(session, "change", schema("b"))
    log_change(session, seq, remove="a")
    assert history(session) == (["a"], [["b"], []])
    log_header(session, "series", schema("b"))
    assert history(session) == (["b"], [])


def test_S65_a_redefinition_begins_anew() -> None:
    session = new_session()
    log_header(session, "initial", schema("a"))
    seq = log_header(session, "change", schema("a"), schema("b"))
    log_change(session, seq, add="b")
    log_header(session, "change", schema("a", "new text"), schema("b"))
    assert history(session) == (["a", "b"], [])
    log_header(session, "change", schema("a", "new text"), schema("b"), series=True)
    assert history(session) == (["a", "b"], [])


def test_S66_a_log_without_updates_falls_back_to_the_active_tools() -> None:
    session = new_session()
    log_header(session, "initial", schema("a"))
    log_header(session, "change", schema("a"), schema("b"))
    assert history(session) == (["a", "b"], [])


def test_S47_an_addition_binds_to_its_own_header() -> None:
    session = new_session()
    first = log_header(session, "initial", schema("a"))
    second = log_header(session, "change", schema("a"), schema("b"))
    with pytest.raises(SurfaceError, match="does not define tool 'b'"):
        log_change(session, first, add="b")
    with pytest.raises(SurfaceError, match="names no earlier event"):
        log_change(session, 99, add="b")
    log_change(session, second, add="b")
    with pytest.raises(SurfaceError, match="names no request header"):
        log_change(session, second + 1, add="b")
