from pathlib import Path
from textwrap import dedent

import pytest

from dsh_loader import Row, RowsError, load_rows


def write(folder: Path, text: str) -> Path:
    path = folder / "dsh.toml"
    path.write_text(dedent(text), encoding="utf-8")
    return path


def test_rows_are_read_with_their_config(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        [other]
        table = "belongs to others"

        [[plugin]]
        id = "store"
        use = "session-jsonl"
        config = { root = "sessions" }

        [[plugin]]
        id = "off"
        use = "some.module:apply"
        disabled = true
        """,
    )
    assert load_rows(path) == [
        Row(id="store", use="session-jsonl", config={"root": "sessions"}),
        Row(id="off", use="some.module:apply", disabled=True),
    ]


def test_K111_a_row_without_id_gets_a_new_one_at_every_read(tmp_path: Path) -> None:
    path = write(tmp_path, "[[plugin]]\nuse = 'a'\n")
    first, second = load_rows(path), load_rows(path)
    assert first[0].id != second[0].id


def test_K111_two_rows_of_one_id_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "[[plugin]]\nid='x'\nuse='a'\n[[plugin]]\nid='x'\nuse='b'\n")
    with pytest.raises(RowsError, match="'x'") as caught:
        load_rows(path)
    assert (str(path) in caught.value.message, caught.value.code) == (True, "ROWS_INVALID")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("[[plugin", "TOML", id="unparsable"),
        pytest.param("plugin = 'x'", "[[plugin]]", id="not a list"),
        pytest.param("plugin = [1]", "entry 1", id="not a mapping"),
        pytest.param(
            "[[plugin]]\nid='a'\nuse='u'\n[[plugin]]\nid='b'\n", "entry 2 ('b')", id="no use"
        ),
        pytest.param("[[plugin]]\nuse='u'\nusing='u'\n", "using", id="unknown field"),
    ],
)
def test_K121_an_invalid_file_is_an_error_that_names_file_and_entry(
    tmp_path: Path, text: str, names: str
) -> None:
    path = write(tmp_path, text)
    with pytest.raises(RowsError) as caught:
        load_rows(path)
    assert str(path) in caught.value.message
    assert names in caught.value.message


def test_K121_only_an_absent_optional_file_means_no_rows(tmp_path: Path) -> None:
    assert load_rows(tmp_path / "none.toml", optional=True) == []
    with pytest.raises(RowsError, match="no such file"):
        load_rows(tmp_path / "none.toml")
    with pytest.raises(RowsError, match="cannot be read"):
        load_rows(tmp_path, optional=True)
