from pathlib import Path
from types import SimpleNamespace

import pytest

from dsh_loader import ExpressionError, RowsError, load_rows
from dsh_loader.expressions import evaluate

SERVICES = {"dial": SimpleNamespace(level=7, inner=SimpleNamespace(name="n"), _secret=1)}
ENVIRON = {"WORD": "hello", "EMPTY": "", "OFF": "no"}


def value(text: object) -> object:
    return evaluate(text, SERVICES.__getitem__, ENVIRON, "config")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("plain $5 {x}", "plain $5 {x}", id="no expression"),
        pytest.param("${env.WORD}", "hello", id="environment"),
        pytest.param("<${env.WORD}>", "<hello>", id="joined"),
        pytest.param("${env.NOTHING:-a:-b}", "a:-b", id="otherwise"),
        pytest.param("${env.EMPTY:-x}", "", id="set but empty"),
        pytest.param("${home}/x", f"{Path.home()}/x", id="home"),
        pytest.param("${service.dial.level}", 7, id="keeps its type"),
        pytest.param("level ${service.dial.level}", "level 7", id="joined as text"),
        pytest.param("${service.dial.inner.name}", "n", id="dotted"),
        pytest.param("${service.dial}", SERVICES["dial"], id="the service itself"),
        pytest.param("${not env.WORD}", False, id="not set"),
        pytest.param("${not env.NOTHING}", True, id="not unset"),
        pytest.param("${not env.OFF}", True, id="not no"),
        pytest.param("${not service.dial.level}", False, id="not attribute"),
        pytest.param("$${env.WORD}", "${env.WORD}", id="escaped"),
        pytest.param({"a": ["${env.WORD}"]}, {"a": ["hello"]}, id="nested"),
    ],
)
def test_K116_expressions_have_one_small_form(text: object, expected: object) -> None:
    assert value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("${env.NOTHING}", id="unset"),
        pytest.param("${1 + 1}", id="code"),
        pytest.param("${service.dial.inner()}", id="a call"),
        pytest.param("${service.dial._secret}", id="private"),
        pytest.param("${service.dial.nothing}", id="no attribute"),
        pytest.param("${}", id="empty"),
        pytest.param("open ${env.WORD", id="open"),
    ],
)
def test_K116_anything_else_is_an_error_that_says_where(text: str) -> None:
    with pytest.raises(ExpressionError, match=r"^config\.key"):
        value({"key": text})


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("use = '${env.X}'", id="use"),
        pytest.param("use = 'u'\ninject = ['${env.X}']", id="inject"),
        pytest.param("use = 'u'\nintercept = { a = '${env.X}' }", id="intercept"),
        pytest.param("use = 'u'\nisolate = { a = '${env.X}' }", id="isolate"),
        pytest.param("use = 'u'\nisolate = { '${env.X}' = true }", id="a key"),
        pytest.param("include = '${env.X}'", id="include"),
    ],
)
def test_K117_an_expression_anywhere_else_refuses_the_file_and_names_the_row(
    tmp_path: Path, line: str
) -> None:
    path = tmp_path / "dsh.toml"
    path.write_text(f"[[plugin]]\nid = 'odd'\n{line}\n", encoding="utf-8")
    with pytest.raises(RowsError, match=r"'odd'.*an expression may stand in config and disabled"):
        load_rows(path)


def test_K117_disabled_takes_no_text_that_is_no_expression(tmp_path: Path) -> None:
    path = tmp_path / "dsh.toml"
    path.write_text("[[plugin]]\nuse = 'u'\ndisabled = 'false'\n", encoding="utf-8")
    with pytest.raises(RowsError, match="`disabled` is true, false or an expression"):
        load_rows(path)
