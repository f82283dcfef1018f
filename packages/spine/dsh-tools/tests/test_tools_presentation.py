"""Views as user interfaces get them: JSON tagged by `card`, and nothing that is not given."""

import pytest

from dsh_brand import encode
from dsh_llm import TextBlock
from dsh_tools import CallView
from dsh_tools.presentation import Diff, DiffCall, GenericCall, Location, TerminalCall


@pytest.mark.parametrize(
    ("view", "wire"),
    [
        pytest.param(GenericCall("Do it"), b'{"card":"generic","title":"Do it"}', id="bare"),
        pytest.param(
            GenericCall(
                "Find",
                kind="search",
                raw_input={"a": [1]},
                content=(TextBlock("c"),),
                locations=(Location("/a"), Location("/b", line=3)),
            ),
            b'{"card":"generic","title":"Find","kind":"search","rawInput":{"a":[1]},'
            b'"content":[{"type":"text","text":"c"}],'
            b'"locations":[{"path":"/a"},{"path":"/b","line":3}]}',
            id="generic",
        ),
        pytest.param(
            TerminalCall("ls", description="List.", cwd="/w"),
            b'{"card":"terminal","title":"ls","description":"List.","cwd":"/w"}',
            id="terminal",
        ),
        pytest.param(
            DiffCall(
                "Edit",
                diffs=(Diff("/a", None, "new"), Diff("/b", "old", "")),
                locations=(Location("/a"),),
            ),
            b'{"card":"diff","title":"Edit","diffs":['
            b'{"path":"/a","oldText":null,"newText":"new"},'
            b'{"path":"/b","oldText":"old","newText":""}],"locations":[{"path":"/a"}]}',
            id="diff",
        ),
    ],
)
def test_T104_views_of_calls_on_the_wire(view: CallView, wire: bytes) -> None:
    assert encode(view) == wire
