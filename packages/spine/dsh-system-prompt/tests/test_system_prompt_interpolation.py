"""Variables in section texts."""

import pytest

from dsh_system_prompt import (
    MalformedVariableError,
    MissingVariableError,
    UnknownVariableError,
    interpolate,
)

VALUES = {"cwd": "/w", "model": "{{cwd}}", "late": None}


def fill(text: str) -> str:
    return interpolate(text, VALUES, section="s")


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        pytest.param("in {{cwd}}, twice {{cwd}}", "in /w, twice /w", id="values"),
        pytest.param("{{model}}", "{{cwd}}", id="substituted text is not scanned again"),
        pytest.param("a {{ b", "a {{ b", id="never closed"),
        pytest.param("}} {x} {", "}} {x} {", id="no opening"),
    ],
)
def test_T116_variables_are_filled_in_one_pass(text: str, filled: str) -> None:
    assert fill(text) == filled


@pytest.mark.parametrize("text", ["{{ cwd }}", "{{CWD}}", "{{}}", "{{a {{cwd}}", "{{{cwd}}}"])
def test_T116_T117_braces_without_a_name_are_malformed(text: str) -> None:
    with pytest.raises(MalformedVariableError, match="section 's'"):
        fill(text)


def test_T117_the_three_errors_differ_and_name_variable_and_section() -> None:
    with pytest.raises(UnknownVariableError, match=r"'s'.*'nobody'.*cwd, late, model"):
        fill("{{nobody}}")
    with pytest.raises(MissingVariableError, match=r"'s'.*'late'"):
        fill("{{late}}")
