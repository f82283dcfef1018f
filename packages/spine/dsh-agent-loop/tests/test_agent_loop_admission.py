"""Prompt, header and runtime-context decisions, as pure functions."""

import pytest

from dsh_agent_loop.admission import (
    AppendPrompt,
    FallbackPrompt,
    HeaderDecision,
    PromptChange,
    ReplacePrompt,
    Surface,
    SystemNode,
    admit_header,
    admit_prompt,
    admit_runtime_context,
    context_changed,
)
from dsh_llm import LlmCallConfig, create_user_message
from dsh_session import RequestContext, RequestHeader

EMPTY = Surface(empty=True, head_is_system=False, system_nodes=())


def on_surface(*texts: str | None) -> Surface:
    nodes = [SystemNode(10 + index, text) for index, text in enumerate(texts)]
    return Surface(empty=False, head_is_system=True, system_nodes=nodes)


@pytest.mark.parametrize("text", ["", "You help."])
def test_A97_the_first_prompt_becomes_node_0_even_when_empty(text: str) -> None:
    assert admit_prompt(text, EMPTY, consolidate=True) == [AppendPrompt(text)]


@pytest.mark.parametrize(
    ("nodes", "rendered", "consolidate", "expected"),
    [
        pytest.param(("A",), "A", True, [], id="same"),
        pytest.param(("A",), "B", True, [ReplacePrompt(10, "B")], id="changed"),
        pytest.param(("A",), "B", False, [AppendPrompt("B")], id="in-history"),
        pytest.param(("A", "B"), "B", False, [], id="effective-is-the-last"),
        pytest.param(("A", "B"), "A", False, [AppendPrompt("A")], id="back-to-the-first"),
        pytest.param(("A", ""), "A", False, [], id="empty-nodes-do-not-count"),
        pytest.param(
            ("A", "B", "C"),
            "C",
            True,
            [ReplacePrompt(11, ""), ReplacePrompt(12, ""), ReplacePrompt(10, "C")],
            id="consolidated",
        ),
        pytest.param(
            ("A", "B"),
            "",
            False,
            [ReplacePrompt(11, ""), ReplacePrompt(10, "")],
            id="emptied-latest-first",
        ),
        pytest.param((None,), "A", True, [ReplacePrompt(10, "A")], id="odd-node-differs"),
    ],
)
def test_A97_reconciling(
    nodes: tuple[str | None, ...], rendered: str, consolidate: bool, expected: list[PromptChange]
) -> None:
    assert admit_prompt(rendered, on_surface(*nodes), consolidate=consolidate) == expected


@pytest.mark.parametrize(
    ("known", "rendered", "expected"),
    [
        pytest.param(None, "A", [FallbackPrompt("A")], id="first"),
        pytest.param("A", "A", [], id="unchanged"),
        pytest.param("A", "B", [FallbackPrompt("B")], id="changed"),
        pytest.param(None, "", [], id="nothing-to-say"),
    ],
)
def test_A97_where_no_system_message_may_stand(
    known: str | None, rendered: str, expected: list[PromptChange]
) -> None:
    surface = Surface(empty=False, head_is_system=False, system_nodes=(), fallback_text=known)
    assert admit_prompt(rendered, surface, consolidate=True) == expected


HEADER = RequestHeader(config=LlmCallConfig(provider="p", model="m"))
OTHER = RequestHeader(config=LlmCallConfig(provider="p", model="n"))


@pytest.mark.parametrize(
    ("previous", "first", "series", "expected"),
    [
        pytest.param(None, True, False, ("initial", False), id="initial"),
        pytest.param(None, True, True, ("initial", True), id="initial-series"),
        pytest.param(HEADER, True, False, ("resume", False), id="resume-though-equal"),
        pytest.param(OTHER, False, False, ("change", False), id="change"),
        pytest.param(OTHER, False, True, ("change", True), id="change-series"),
        pytest.param(HEADER, False, True, ("series", False), id="series"),
        pytest.param(HEADER, False, False, None, id="nothing-new"),
    ],
)
def test_A99_when_a_header_is_logged(
    previous: RequestHeader | None,
    first: bool,
    series: bool,
    expected: tuple[str, bool] | None,
) -> None:
    decision = admit_header(HEADER, previous, first=first, series=series)
    found = None if decision is None else (decision.reason, decision.starts_series)
    assert found == expected
    assert decision is None or isinstance(decision, HeaderDecision)


def test_A100_a_context_is_logged_when_it_differs() -> None:
    wide = RequestContext(provider="p", model="m", context_window=8)
    assert context_changed(wide, None)
    assert not context_changed(wide, RequestContext(provider="p", model="m", context_window=8))
    assert context_changed(RequestContext(provider="p", model="m"), wide)


def test_A104_a_snapshot_is_offered_until_the_model_sees_it() -> None:
    cleared, snapshot = create_user_message("cleared"), create_user_message("facts")
    same, newer = create_user_message("facts"), create_user_message("newer")
    assert admit_runtime_context(snapshot, cleared, None) is snapshot
    assert admit_runtime_context(same, cleared, snapshot) is None
    assert admit_runtime_context(newer, cleared, snapshot) is newer
    assert admit_runtime_context(None, cleared, snapshot) is cleared
    assert admit_runtime_context(None, cleared, create_user_message("cleared")) is None
    assert admit_runtime_context(None, cleared, None) is None
