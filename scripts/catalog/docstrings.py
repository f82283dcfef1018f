"""Parts of a Google docstring, and where an inherited one is looked for."""

from collections.abc import Iterable

import griffe

from catalog.model import Parameter


def summary(text: str) -> str:
    """The first sentence, on one line."""
    paragraph = " ".join(text.strip().split("\n\n")[0].split())
    end = paragraph.find(". ")
    return paragraph if end < 0 else paragraph[: end + 1]


def one_line(text: str) -> str:
    """The text without its line breaks."""
    return " ".join(text.split())


def text_of(docstring: griffe.Docstring | None) -> str:
    """What stands outside the sections for parameters, results and errors."""
    if docstring is None:
        return ""
    parts = []
    for section in docstring.parsed:
        if isinstance(section, griffe.DocstringSectionText):
            parts.append(section.value.strip())
        elif isinstance(section, griffe.DocstringSectionAdmonition):
            parts.append(f"**{section.title}:** {section.value.description.strip()}")
    return "\n\n".join(parts)


def described(docstring: griffe.Docstring | None) -> dict[str, str]:
    """Descriptions of the names in the sections `Args` and `Attributes`."""
    if docstring is None:
        return {}
    return {
        item.name: one_line(item.description)
        for section in docstring.parsed
        if isinstance(
            section, griffe.DocstringSectionParameters | griffe.DocstringSectionAttributes
        )
        for item in section.value
    }


def returned(docstring: griffe.Docstring | None) -> str:
    """What the sections `Returns` and `Yields` say."""
    if docstring is None:
        return ""
    return " ".join(
        one_line(item.description)
        for section in docstring.parsed
        if isinstance(section, griffe.DocstringSectionReturns | griffe.DocstringSectionYields)
        for item in section.value
    )


def raised(docstring: griffe.Docstring | None) -> tuple[Parameter, ...]:
    """What the section `Raises` says."""
    if docstring is None:
        return ()
    return tuple(
        Parameter(str(item.annotation), "", one_line(item.description))
        for section in docstring.parsed
        if isinstance(section, griffe.DocstringSectionRaises)
        for item in section.value
    )


def first_docstring(objects: Iterable[griffe.Object | griffe.Alias]) -> griffe.Docstring | None:
    """The first docstring that is not empty; an override inherits that of what it overrides."""
    for found in objects:
        if found.docstring is not None and found.docstring.value.strip():
            return found.docstring
    return None
