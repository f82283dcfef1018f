"""What a plugin definition asks for: its body, its needs by annotation, its config model.

Annotations are read by name and never evaluated: a type imported for checking alone must not be
needed at run time.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from types import FrameType, FunctionType, MethodType, ModuleType
from typing import Final, Protocol

from dsh_cordis._views import Viewable
from dsh_cordis.errors import ConfigError
from dsh_cordis.handle import Handle, Record

_MISSING: Final = object()
_KNOWN: Final = "_dsh_cordis_definition"


class PluginObject(Protocol):
    """An object or a module that is a plugin."""

    @property
    def apply(self) -> Callable[..., object]:
        """The body; a property, since nobody assigns it and a module's function is no field."""


Plugin = Callable[..., object] | PluginObject
"""A function `(ctx, config)` or `(ctx)`, a service class, or something with `apply`."""


def _no_body(ctx: object, config: object) -> None:
    return None


class Definition(Record, eq=False):
    """A plugin as the kernel sees it."""

    plugin: object
    name: str | None
    run: Callable[[object, object], object] = _no_body
    required: Mapping[str, object] = {}
    optional: frozenset[str] = frozenset()
    model: object = None
    transparent: bool = False
    """Whether services are read through it as by the plugin that made it; a scope."""

    def is_of(self, plugin: object) -> bool:
        """Whether this is the definition of a plugin; bound methods are made anew at each read."""
        return self.plugin is plugin or (isinstance(plugin, MethodType) and self.plugin == plugin)

    def resolve_config(self, raw: object) -> object:
        """Run the config model; a definition without one takes the value as it is."""
        validate = getattr(self.model, "model_validate", None)
        if validate is None or (isinstance(self.model, type) and isinstance(raw, self.model)):
            return raw
        try:
            return validate({} if raw is None else raw)
        except Exception as error:  # noqa: BLE001  # whatever a model raises is a ConfigError
            problems = _problems(error)
        # The model's own error shows the rejected values, which may hold credentials.
        raise ConfigError(self.name or "(unnamed)", problems)


def define(plugin: object, base: type) -> Definition:
    """Inspect a plugin.

    Args:
        plugin: Function, service class, or object or module with `apply`.
        base: The context class whose subclasses declare needs.

    Raises:
        TypeError: It has none of these shapes, or an annotation of it cannot be found.
    """
    if type(plugin) is not FunctionType:
        return _inspect(plugin, base)
    # Reading a signature takes longer than all the rest of mounting a plugin. The answer stands on
    # the function as long as nothing else does, and tells whose it is: `wraps` copies it.
    found = plugin.__dict__.get(_KNOWN)
    if isinstance(found, Definition) and found.plugin is plugin and len(plugin.__dict__) == 1:
        return found
    definition = _inspect(plugin, base)
    if not plugin.__dict__:
        plugin.__dict__[_KNOWN] = definition
    return definition


def _inspect(plugin: object, base: type) -> Definition:
    apply = None if isinstance(plugin, type) else getattr(plugin, "apply", None)
    body = apply if callable(apply) else plugin
    if isinstance(plugin, Handle) or not callable(body):
        raise _refused(plugin)
    parameters = _parameters(plugin, body)
    required, optional = needs_of(_annotation(parameters[0], body, strict=True), base)
    required.update(_declared(plugin))
    takes_config = len(parameters) > 1
    model = getattr(plugin, "Config", None)
    if model is None and takes_config:
        model = _annotation(parameters[1], body, strict=False)
    if getattr(model, "model_validate", None) is None:
        model = None
    run = _runner(plugin, body, takes_config)
    free = frozenset(optional - required.keys())
    return Definition(plugin, _name_of(plugin), run, required, free, model)


def _refused(plugin: object) -> TypeError:
    return TypeError(
        f"{plugin!r} is no plugin; give a function (ctx, config), a Service class, or an object "
        "or module with `apply`"
    )


def _parameters(plugin: object, body: Callable[..., object]) -> list[inspect.Parameter]:
    """What takes the context and, if anything does, the config."""
    for count in (2, 1):
        try:
            signature = inspect.signature(body)
            bound = signature.bind(*[None] * count)
        except (TypeError, ValueError):
            continue
        parameters = [signature.parameters[name] for name in bound.arguments]
        return (parameters * 2)[:count]  # one of `*args` takes both
    raise _refused(plugin)


def _runner(
    plugin: object, body: Callable[..., object], takes_config: bool
) -> Callable[[object, object], object]:
    if not isinstance(plugin, type):
        return body if takes_config else (lambda ctx, config: body(ctx))

    def build(ctx: object, config: object) -> object:
        service = body(ctx, config) if takes_config else body(ctx)
        init = getattr(type(service), "init", None)
        # The inherited init does nothing, and a body that never awaits needs no task.
        return init(service) if callable(init) and init is not Viewable.init else None

    return build


def _declared(plugin: object) -> Mapping[str, object]:
    inject = getattr(plugin, "inject", None)
    if inject is None or callable(inject):
        return {}
    if isinstance(inject, Mapping):
        return inject
    if isinstance(inject, Iterable) and not isinstance(inject, str):
        return dict.fromkeys(inject)
    raise TypeError(f"`inject` of {plugin!r} must be a list of keys or a mapping, not {inject!r}")


def needs_of(context_type: object, base: type) -> tuple[dict[str, object], set[str]]:
    """The annotated names of a context class: required ones in order, and optional ones."""
    classes = reversed(context_type.__mro__) if isinstance(context_type, type) else ()
    below = [cls for cls in classes if issubclass(cls, base) and cls is not base]
    names = [name for cls in below for name in _annotated_names(cls) if not hasattr(base, name)]
    defaults = {
        name: getattr(context_type, name, _MISSING) for name in names if not name.startswith("_")
    }
    required = dict.fromkeys(name for name, value in defaults.items() if value is _MISSING)
    return required, {name for name, value in defaults.items() if value is None}


def _annotated_names(cls: type) -> list[str]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return list(annotationlib.get_annotations(cls, format=annotationlib.Format.STRING))
    return list(vars(cls).get("__annotations__", ()))


def _annotation(
    parameter: inspect.Parameter, body: Callable[..., object], *, strict: bool
) -> object:
    """A parameter's annotation; a string is looked up as a dotted name."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return None
    if not isinstance(annotation, str):
        return annotation
    function = _function_of(body)
    found = _lookup(annotation.strip("\"' "), function)
    if found is _MISSING and (strict or annotation.isidentifier()):
        raise TypeError(
            f"the annotation {annotation!r} of parameter {parameter.name!r} of "
            f"{body!r} cannot be found; define that name in the plugin's module"
        )
    return None if found is _MISSING else found


def _function_of(body: Callable[..., object]) -> FunctionType | None:
    target: object = body.__init__ if isinstance(body, type) else body  # type: ignore[misc]  # read only
    target = getattr(target, "func", target)  # functools.partial
    if not isinstance(target, FunctionType | MethodType):
        target = vars(type(target)).get("__call__", target)
    target = getattr(target, "__func__", target)
    target = inspect.unwrap(target) if callable(target) else target
    return target if isinstance(target, FunctionType) else None


def _lookup(name: str, function: FunctionType | None) -> object:
    first, *rest = name.split(".")
    if function is None or not all(part.isidentifier() for part in (first, *rest)):
        return _MISSING
    found = next((space[first] for space in _namespaces(function) if first in space), _MISSING)
    for part in rest:
        found = getattr(found, part, _MISSING)
    return found


def _namespaces(function: FunctionType) -> Iterable[Mapping[str, object]]:
    """The enclosing function, as long as it runs, then the module."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if function.__code__ in frame.f_code.co_consts:
            yield frame.f_locals
        frame = frame.f_back
    yield function.__globals__


def _name_of(plugin: object) -> str | None:
    name = getattr(plugin, "name", None)
    if not isinstance(name, str):
        name = getattr(plugin, "__name__", None)
    if isinstance(plugin, ModuleType) and name == plugin.__name__:
        return name.rpartition(".")[2]
    return name if isinstance(name, str) and name != "<lambda>" else None


def _problems(error: Exception) -> list[tuple[str, str]]:
    listing = getattr(error, "errors", None)
    if not callable(listing):
        return [("", str(error))]
    return [(".".join(map(str, item["loc"])), str(item["msg"])) for item in listing()]
