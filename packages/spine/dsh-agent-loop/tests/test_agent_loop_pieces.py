"""Small pure parts: call ids, arguments, endings."""

import pytest

from dsh_agent_loop.calls import make_calls_distinct, parse_arguments
from dsh_agent_loop.endings import aborted, failed
from dsh_llm import CallId, LlmError, LlmFailure, TextBlock, ToolCallBlock
from dsh_session import Aborted, ErrorEnd, HookCancel, UserCancel


def block(call_id: str) -> ToolCallBlock:
    return ToolCallBlock(id=CallId(call_id), name="t", arguments="{}")


def test_A105_ids_are_made_distinct_and_the_first_use_keeps_its_own() -> None:
    fresh = iter(["f1", "f2", "f3"])
    text = TextBlock("x")
    used = {"old"}
    blocks = [block("a"), text, block("a"), block(""), block("old")]
    result = make_calls_distinct(blocks, used, lambda: next(fresh))
    assert [getattr(each, "id", None) for each in result] == ["a", None, "f1", "f2", "f3"]
    assert result[1] is text
    assert used == {"old", "a", "f1", "f2", "f3"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("", {}, id="empty"),
        pytest.param('{"a": 1}', {"a": 1}, id="object"),
        pytest.param("[1", "[1", id="cut-off"),
        pytest.param("NaN", "NaN", id="not-a-number"),
        pytest.param('{"a": 1} x', '{"a": 1} x', id="trailing"),
    ],
)
def test_A105_arguments_are_parsed_once_or_stay_text(text: str, value: object) -> None:
    assert parse_arguments(text) == value


def test_A11_the_logged_cause_is_fresh() -> None:
    cause = HookCancel(reason="budget", extra={"transport": 1})
    assert aborted(cause) == Aborted(reason=HookCancel(reason="budget"))
    assert aborted(UserCancel()) == Aborted(reason=UserCancel())


def test_A83_A122_the_facts_of_an_error() -> None:
    model_error = LlmError("no", "AUTH", status=401)
    plain = ValueError("broken")
    unknown = ErrorEnd(error=LlmFailure(message="broken", code="UNKNOWN"))
    assert failed(model_error) == ErrorEnd(error=model_error.failure)
    assert failed(plain) == unknown
    assert failed(ExceptionGroup("g", [plain])) == unknown
    assert failed(ExceptionGroup("g", [plain, model_error])) == ErrorEnd(error=model_error.failure)
    rendered = failed(ExceptionGroup("g", [plain, KeyError("k")]))
    assert isinstance(rendered, ErrorEnd)
    assert rendered.error.code == "UNKNOWN"
    assert "broken" in rendered.error.message
