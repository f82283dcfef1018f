"""Expressions in rows: `${...}` in a text, a small closed form and no code.

`${env.NAME}` and `${env.NAME:-otherwise}` read the environment, `${home}` the home folder,
`${service.KEY.ATTRIBUTE}` an attribute of a service; `${not ...}` turns any of them into its
opposite, and `$${` is a plain `${`. A text that is one expression gives its value, any other text
is joined. What is written stays as it is until the row is mounted.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from dsh_loader.errors import ExpressionError

_PARTS: Final = re.compile(r"\$\$\{|\$\{([^{}]*)\}|\$\{")
_FORM: Final = re.compile(
    r"(?P<not>not\s+)?(?:"
    r"env\.(?P<env>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<otherwise>.*))?"
    r"|(?P<home>home)"
    r"|service\.(?P<key>[A-Za-z]\w*)(?P<path>(?:\.[A-Za-z]\w*)*)"
    r")",
    re.DOTALL,
)
_FALSE: Final = frozenset({"", "0", "false", "no", "off"})
_TRUE: Final = frozenset({"1", "true", "yes", "on"})

Lookup = Callable[[str], object]
"""Gives a service by its key, or raises what says that it is not there."""


def has_expression(value: object) -> bool:
    """Whether a `${` stands anywhere in a value."""
    if isinstance(value, str):
        return "${" in value
    if isinstance(value, Mapping):
        return any(has_expression(part) for pair in value.items() for part in pair)
    return isinstance(value, list | tuple) and any(has_expression(part) for part in value)


def evaluate(
    value: object, service: Lookup, environ: Mapping[str, str] | None = None, where: str = ""
) -> object:
    """A copy of a value, with every expression in it replaced.

    Args:
        value: What a row holds.
        service: Where services come from.
        environ: Another environment than the process has.
        where: What messages call the value.

    Raises:
        ExpressionError: It has no known form, or what it names is not there.
    """
    scope = _Scope(service, os.environ if environ is None else environ)
    return scope.replace(value, where or "value")


def truth(value: object, where: str) -> bool:
    """Whether a value means yes; for texts `1`, `true`, `yes`, `on` and their opposites.

    Raises:
        ExpressionError: It says neither.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
    raise ExpressionError(f"{where}: {value!r} is neither true nor false; write true or false")


class _Scope:
    def __init__(self, service: Lookup, environ: Mapping[str, str]) -> None:
        self._service = service
        self._environ = environ

    def replace(self, value: object, where: str) -> object:
        if isinstance(value, str):
            return self._text(value, where) if "${" in value else value
        if isinstance(value, Mapping):
            return {key: self.replace(part, f"{where}.{key}") for key, part in value.items()}
        if isinstance(value, list | tuple):
            return [self.replace(part, f"{where}.{n}") for n, part in enumerate(value)]
        return value

    def _text(self, text: str, where: str) -> object:
        whole = _PARTS.fullmatch(text)
        if whole is not None and whole[1] is not None:
            return self._value(whole[1], where)
        return _PARTS.sub(lambda part: self._part(part, where), text)

    def _part(self, part: re.Match[str], where: str) -> str:
        if part[0] == "$${":
            return "${"
        if part[1] is None:
            raise _unknown(part[0], where)
        return str(self._value(part[1], where))

    def _value(self, expression: str, where: str) -> object:
        form = _FORM.fullmatch(expression.strip())
        if form is None:
            raise _unknown("${" + expression + "}", where)
        if form["not"] is None:
            return self._plain(form, where)
        if form["env"] is not None and form["otherwise"] is None:
            return not truth_of_variable(self._environ.get(form["env"]))
        return not self._plain(form, where)

    def _plain(self, form: re.Match[str], where: str) -> object:
        if form["home"] is not None:
            return str(Path.home())
        if form["env"] is not None:
            return self._variable(form["env"], form["otherwise"], where)
        value = self._service(form["key"])
        for name in form["path"].split(".")[1:]:
            try:
                value = getattr(value, name)
            except AttributeError as error:
                text = f"{where}: service {form['key']!r} has no {form['path'][1:]!r}"
                raise ExpressionError(text, error) from error
        return value

    def _variable(self, name: str, otherwise: str | None, where: str) -> str:
        value = self._environ.get(name)
        if value is None:
            value = otherwise
        if value is None:
            raise ExpressionError(
                f"{where}: the environment has no {name}; set it, or give a value to take then: "
                f"${{env.{name}:-...}}"
            )
        return value


def truth_of_variable(value: str | None) -> bool:
    """Whether an environment variable is set to anything but an empty or denying word."""
    return value is not None and value.strip().lower() not in _FALSE


def _unknown(expression: str, where: str) -> ExpressionError:
    return ExpressionError(
        f"{where}: {expression!r} is no expression; there are ${{env.NAME}}, "
        "${env.NAME:-otherwise}, ${home}, ${service.KEY.ATTRIBUTE} and ${not ...}, and $${ is a "
        "plain ${"
    )
