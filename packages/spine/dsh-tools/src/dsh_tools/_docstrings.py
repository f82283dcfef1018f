"""Descriptions of a tool and its parameters from a docstring (Google, NumPy and Sphinx styles)."""

import inspect
import re
from typing import Final, Literal

_Style = Literal["google", "numpy", "sphinx"]

_PARAMETERS: Final[dict[_Style, re.Pattern[str]]] = {
    "google": re.compile(r"^(Args|Arguments|Params|Parameters):[ \t]*$", re.MULTILINE),
    "numpy": re.compile(r"^(Parameters|Params)[ \t]*\n-{3,}[ \t]*$", re.MULTILINE),
    "sphinx": re.compile(r"^:(param|parameter|arg|argument|key|keyword)\b", re.MULTILINE),
}
_OTHER_SECTION: Final = re.compile(
    r"^((Returns?|Yields?|Raises|Examples?|Notes?|Warnings?|Attributes):[ \t]*$"
    r"|(Returns|Yields|Raises|Examples|Notes|Warns|See Also)[ \t]*\n-{3,}[ \t]*$"
    r"|:(returns?|rtype|raises?)\b)",
    re.MULTILINE,
)


def read_docstring(docstring: str | None) -> tuple[str, dict[str, str]]:
    """The text before the first section, and the description of each documented parameter."""
    text = inspect.cleandoc(docstring or "")
    section = _OTHER_SECTION.search(text)
    end = section.start() if section else len(text)
    for style, pattern in _PARAMETERS.items():
        found = pattern.search(text)
        if found:
            return text[: min(end, found.start())].strip(), _parameters(text, style)
    return text[:end].strip(), {}


def _parameters(text: str, style: _Style) -> dict[str, str]:
    # Imported late: griffe takes 0.15 s, and most tools describe their parameters in annotations.
    import griffe

    docstring = griffe.Docstring(text)
    sections = docstring.parse(griffe.Parser(style), warnings=False)
    return {
        entry.name.lstrip("*"): " ".join(entry.description.split())
        for section in sections
        if isinstance(section, griffe.DocstringSectionParameters)
        for entry in section.value
    }
