from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh_loader import (
    Patch,
    Row,
    RowsError,
    apply_patches,
    compose,
    dump_rows,
    load_layer,
    load_rows,
)


def row(name: str, **fields: Any) -> Row:
    return Row.model_validate({"id": name, "use": "some-plugin", **fields})


def group(name: str, *rows: Row) -> Row:
    return Row.model_validate({"id": name, "group": True, "rows": rows})


def patch(**fields: Any) -> Patch:
    return Patch.model_validate(fields)


def test_K118_patches_apply_in_order_to_a_copy() -> None:
    rows = [row("a", config={"x": 1, "y": 2}), group("g", row("b"))]
    patches = [
        patch(id="a", config={"x": 3}),
        patch(insert=(row("c"),)),
        patch(id="g", insert=(row("d"),)),
        patch(id="d", disabled=True),
        patch(id="b", isolate={"fs": True}),
    ]
    done = apply_patches(rows, patches)
    assert done.rows == [
        row("a", config={"x": 3}),
        group("g", row("b", isolate={"fs": True}), row("d", disabled=True)),
        row("c"),
    ]
    assert done.warnings == []
    assert rows == [row("a", config={"x": 1, "y": 2}), group("g", row("b"))]
    assert apply_patches(rows, patches).rows == done.rows


def test_K119_what_does_not_fit_is_skipped_with_a_warning() -> None:
    rows = [row("a"), Row(id="inc", include="x.toml")]
    patches = [
        patch(id="none", disabled=True),
        patch(disabled=True),
        patch(id="a", insert=(row("b"),)),
        patch(id="inc", insert=(row("b"),)),
        patch(id="a", use="another", disabled=True),
        patch(id="a", use="some-plugin", config={"kept": 1}),
    ]
    done = apply_patches(rows, patches)
    assert done.rows == [row("a", config={"kept": 1}), Row(id="inc", include="x.toml")]
    assert [text.partition(":")[0] for text in done.warnings] == [
        f"patch {number} is skipped" for number in range(1, 6)
    ]
    assert "'another'" in done.warnings[4]


def test_K119_rows_that_an_override_brought_are_not_reached() -> None:
    patches = [
        patch(id="g", plugin=(row("new"),)),
        patch(id="new", disabled=True),
        patch(id="old", disabled=True),
    ]
    done = apply_patches([group("g", row("old"))], patches)
    assert done.rows == [group("g", row("new"))]
    assert len(done.warnings) == 2


def test_K118_a_patch_that_makes_a_row_invalid_is_an_error() -> None:
    with pytest.raises(RowsError, match="the patch of row 'g'"):
        apply_patches([group("g")], [patch(id="g", config={"x": 1})])
    with pytest.raises(RowsError, match="two rows have the id 'a'"):
        apply_patches([row("a")], [patch(insert=(row("a"),))])


def test_K120_layers_are_one_list_applied_once(tmp_path: Path) -> None:
    files = {
        "one.toml": "[[plugin]]\nid='a'\nuse='p'\nconfig={from='one'}\n",
        "two.toml": "[[patch]]\nid='a'\nconfig={from='two'}\n[[plugin]]\nid='b'\nuse='p'\n",
        "profile.toml": (
            "[profile]\nbundles=['one.toml', 'two.toml']\n[[patch]]\nid='b'\ndisabled=true\n"
        ),
        "home.toml": "[[patch]]\nid='b'\ndisabled=false\nconfig={key='${env.KEY}'}\n",
        "cli.toml": "[[patch]]\nid='nothing'\ndisabled=true\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    done = compose(
        tmp_path / "profile.toml",
        home=tmp_path / "home.toml",
        overlays=[tmp_path / "cli.toml", [patch(id="a", inject=["fs"])]],
    )
    assert done.rows == [
        Row(id="a", use="p", config={"from": "two"}, inject=["fs"]),
        Row(id="b", use="p", config={"key": "${env.KEY}"}),
    ]
    assert len(done.warnings) == 1
    assert compose(home=tmp_path / "absent.toml").rows == []
    dumped = tmp_path / "dump.toml"
    dumped.write_text(dump_rows(done.rows), encoding="utf-8")
    assert load_rows(dumped) == done.rows


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param("patch = 'x'", "[[patch]]", id="not a list"),
        pytest.param("patch = [1]", "patch entry 1", id="not a mapping"),
        pytest.param("[[patch]]\nid='a'\nusing='x'", "using", id="unknown field"),
        pytest.param("[[patch]]\nid='a'\ninsert=[1]", "entry 1", id="a row that is none"),
        pytest.param(
            "[[patch]]\nid='a'\ninsert=[]\ndisabled=true", "either inserts", id="two kinds"
        ),
        pytest.param("[profile]\nbundle=['x']", "bundle", id="unknown profile field"),
        pytest.param("[profile]\nbundles=['none.toml']", "no such file", id="no such bundle"),
    ],
)
def test_K121_an_invalid_layer_is_an_error_that_names_file_and_entry(
    tmp_path: Path, text: str, names: str
) -> None:
    path = tmp_path / "layer.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RowsError) as caught:
        compose(path)
    assert names in caught.value.message
    assert str(tmp_path) in caught.value.message


def test_K121_only_an_absent_optional_layer_means_nothing(tmp_path: Path) -> None:
    assert load_layer(tmp_path / "none.toml", optional=True) == []
    with pytest.raises(RowsError, match="no such file"):
        load_layer(tmp_path / "none.toml")


names = st.text(ascii_lowercase, min_size=1, max_size=2)
plain = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text(max_size=8)
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner.filter(lambda v: v is not None), max_size=2)
        | st.dictionaries(st.text(max_size=3), inner.filter(lambda v: v is not None), max_size=2)
    ),
    max_leaves=6,
)
encodable = st.dictionaries(names, values, max_size=3).filter(
    lambda config: None not in config.values() and "\\ud" not in ascii(config)
)
rows = st.recursive(
    st.builds(lambda name, config: row(name, config=config), names, encodable),
    lambda below: st.builds(
        lambda name, inner: group(name, *inner), names, st.lists(below, max_size=3)
    ),
    max_leaves=6,
)


def ids(rows: list[Row]) -> list[str]:
    return [name for each in rows for name in (each.id, *ids(list(each.rows)))]


@given(st.lists(rows, max_size=4).filter(lambda rows: len(set(ids(rows))) == len(ids(rows))))
def test_K120_any_rows_survive_a_dump(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row]
) -> None:
    path = tmp_path_factory.getbasetemp() / "dump.toml"
    path.write_bytes(dump_rows(rows).encode())
    assert load_rows(path) == rows


patches = st.builds(
    lambda name, config: patch(id=name, config=config), names, encodable
) | st.builds(
    lambda name, inner: patch(id=name, insert=tuple(inner)), names, st.lists(rows, max_size=2)
)


@given(
    st.lists(rows, max_size=3).filter(lambda rows: len(set(ids(rows))) == len(ids(rows))),
    st.lists(patches, max_size=4),
)
def test_K118_K119_patches_never_change_their_inputs(rows: list[Row], patches: list[Patch]) -> None:
    before = dump_rows(rows)
    try:
        done = apply_patches(rows, patches)
    except RowsError:
        return
    finally:
        assert dump_rows(rows) == before
    assert apply_patches(rows, patches) == done
    applied = len(patches) - len(done.warnings)
    assert applied >= 0
