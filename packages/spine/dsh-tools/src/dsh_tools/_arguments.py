"""The parameters of a decorated function: their schema, and its keyword arguments from JSON."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from dsh_brand import JsonValue, decode_json

from . import texts
from ._build import BuildError, Field, Location, build_members
from ._codecs import make_field, object_schema
from ._json import compact, member_path
from .errors import ToolArgsError, ToolDeclarationError
from .execution import ToolRunContext
from .json_schema import assert_json_schema
from .validation import Checked, Violation


class Parameters:
    """What a function takes, apart from the run context."""

    def __init__(self, tool_name: str, fields: list[Field], context_name: str | None) -> None:
        self.tool_name = tool_name
        self._fields = fields
        self._context_name = context_name
        self.schema = object_schema(fields)
        assert_json_schema(self.schema, f"the parameters of tool {tool_name!r}")
        self._checked = Checked(self.schema)

    @classmethod
    def read(
        cls,
        tool_name: str,
        function: Callable[..., object],
        hints: dict[str, Any],  # any annotations
        documented: Mapping[str, str],
    ) -> "Parameters":
        """Read a signature.

        Raises:
            ToolDeclarationError: A parameter cannot be part of a schema.
        """
        fields: list[Field] = []
        context_name: str | None = None
        parameters = inspect.signature(function).parameters
        for name, parameter in parameters.items():
            where = f"tool {tool_name!r}, parameter {name!r}"
            _check_kind(parameter, name in hints, where)
            if hints[name] is ToolRunContext:
                if context_name is not None:
                    raise ToolDeclarationError(f"{where}: there is a ToolRunContext already")
                context_name = name
                continue
            required = parameter.default is inspect.Parameter.empty
            description = documented.get(name)
            fields.append(
                make_field(name, name, hints[name], required, where, description=description)
            )
        for name in documented:
            if name not in parameters:
                raise ToolDeclarationError(
                    f"tool {tool_name!r}: the docstring describes {name!r}, which is no parameter"
                )
        return cls(tool_name, fields, context_name)

    def build(self, arguments: JsonValue, context: ToolRunContext) -> dict[str, object]:
        """Keyword arguments of a call.

        Raises:
            ToolArgsError: The arguments do not fit, with all that is wrong.
        """
        self.check(arguments)
        assert isinstance(arguments, dict)
        try:
            values = build_members(self._fields, arguments)
        except BuildError as error:
            raise self._error([_refused(*problem) for problem in error.problems]) from error
        if self._context_name is not None:
            values[self._context_name] = context
        return values

    def check(self, arguments: JsonValue) -> None:
        """Validate without building.

        Raises:
            ToolArgsError: The arguments do not fit the schema.
        """
        if not isinstance(arguments, dict):
            raise ToolArgsError(_no_object(self.tool_name, arguments))
        violations = self._checked.violations(arguments, "arguments")
        if violations:
            raise self._error(violations)

    def classifier(self, safe: object) -> Callable[[Any], bool] | None:  # JSON of any kind
        """A classifier that says yes for valid arguments only."""
        if safe is False:
            return None

        def classify(arguments: JsonValue) -> bool:
            if not self._fits(arguments):
                return False
            return (safe(arguments) if callable(safe) else safe) is True

        return classify

    def presenter(self, present: Callable[..., Any]) -> Callable[..., Any]:  # any view
        """A presenter that answers `None` for arguments that do not fit, such as old ones."""

        def present_softly(arguments: JsonValue, *rest: object) -> Any:  # any view
            return present(arguments, *rest) if self._fits(arguments) else None

        return present_softly

    def _fits(self, arguments: JsonValue) -> bool:
        try:
            self.check(arguments)
        except ToolArgsError:
            return False
        return True

    def _error(self, violations: list[Violation]) -> ToolArgsError:
        problems = "; ".join(violation.text for violation in violations)
        message = texts.INVALID_ARGUMENTS.format(name=self.tool_name, problems=problems)
        return ToolArgsError(message, violations)


def _check_kind(parameter: inspect.Parameter, annotated: bool, where: str) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise ToolDeclarationError(
            f"{where}: name each parameter; *args and **kwargs have no schema"
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ToolDeclarationError(f"{where}: arguments come by name; it cannot be positional-only")
    if parameter.name == "self" and not annotated:
        raise ToolDeclarationError(f"{where}: make the tool of a bound method, tool(object.method)")
    if not annotated:
        raise ToolDeclarationError(f"{where}: annotate its type")
    if type(parameter.default).__name__ == "FieldInfo":  # pydantic's, not imported here
        raise ToolDeclarationError(
            f"{where}: its default is a Field(); write Annotated[type, Field(...)] = default"
        )


def _no_object(tool_name: str, arguments: JsonValue) -> str:
    if isinstance(arguments, str):
        try:
            decode_json(arguments)
        except ValueError as error:
            cause = _json_cause(arguments, error)
            return texts.ARGUMENTS_TEXT.format(name=tool_name, cause=cause)
    return texts.ARGUMENTS_NO_OBJECT.format(name=tool_name, value=compact(arguments))


def _json_cause(text: str, error: ValueError) -> str:
    position = getattr(error, "pos", None)
    if isinstance(position, int) and position >= len(text.rstrip()):
        return texts.CUT_OFF
    if str(error).startswith("Unterminated string"):
        return texts.CUT_OFF
    return str(error)


def _refused(location: Location, message: str) -> Violation:
    path = ""
    for step in location:
        path = f"{path}[{step}]" if isinstance(step, int) else member_path(path, step)
    return Violation(path=path, kind="type", expected=message, text=f"'{path}': {message}")
