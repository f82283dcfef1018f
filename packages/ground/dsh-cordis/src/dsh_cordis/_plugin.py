"""What a plugin definition asks for: its body, its needs by annotation, its config model.

Annotations are read by name and never evaluated: a type imported for checking alone must not be
needed at run time.
"""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Final, Protocol
from weakref import WeakKeyDictionary, ref

from dsh_cordis._views import Viewable
from dsh_cordis.errors import ConfigError
from dsh_cordis.handle import Handle

_MISSING: Final = object()
_NOTHING: Final[Mapping[str, object]] = {}


class PluginObject(Protocol):
    """An object or a module that is a plugin."""

    @property
    def apply(self) -> Callable[..., object]:
        """The body; a property, since nobody assigns it and a module's function is no field."""


Plugin = Callable[..., object] | PluginObject
"""A function `(ctx, config)` or `(ctx)`, a service class, or something with `apply`."""


def _no_body(ctx: object, config: object) -> None:
    return None


class Definition:
    """A plugin as the kernel sees it."""

    __slots__ = (
        "identity",
        "model",
        "name",
        "optional",
        "plugin",
        "required",
        "run",
        "transparent",
    )

    def __init__(
        self,
        plugin: object,
        name: str | None,
        run: Callable[[object, object], object] = _no_body,
        required: Mapping[str, object] | None = None,
        optional: frozenset[str] = frozenset(),
        model: object = None,
        *,
        transparent: bool = False,
    ) -> None:
        self.plugin = plugin
        self.identity = identity_of(plugin)
        self.transparent = transparent
        self.name = name
        self.run = run
        self.required: Mapping[str, object] = required or _NOTHING
        self.optional = optional
        self.model = model

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


def identity_of(plugin: object) -> object:
    """A hashable stand-in for the identity of a definition; bound methods are made anew."""
    if isinstance(plugin, MethodType):
        return (id(plugin.__self__), id(plugin.__func__))
    return id(plugin)


def define(plugin: object, base: type) -> Definition:
    """Inspect a plugin.

    Args:
        plugin: Function, service class, or object or module with `apply`.
        base: The context class whose subclasses declare needs.

    Raises:
        TypeError: It has none of these shapes, or an annotation of it cannot be found.
    """
    if type(plugin) is FunctionType and not plugin.__dict__:
        # The usual plugin; nothing can stand on it, so its signature tells all.
        known = _signature_of(plugin, plugin, base)
        run = _runner(plugin, plugin, known.takes_config)
        name = plugin.__name__ if plugin.__name__ != "<lambda>" else None
        return Definition(plugin, name, run, known.required, known.optional, known.model())
    body, owner = _body_of(plugin)
    signature = _signature_of(plugin, body, base)
    required = {**signature.required, **_declared(plugin, owner)}
    optional = signature.optional - required.keys() if signature.optional else _NONE
    model = getattr(owner, "Config", None)
    if model is None:
        model = signature.model()
    elif getattr(model, "model_validate", None) is None:
        model = None
    run = _runner(plugin, body, signature.takes_config)
    return Definition(plugin, _name_of(plugin), run, required, optional, model)


_NONE: Final[frozenset[str]] = frozenset()


class _Signature:
    """What the parameters of a body tell."""

    __slots__ = ("model", "optional", "required", "takes_config")

    def __init__(
        self, parameters: list[inspect.Parameter], body: Callable[..., object], base: type
    ):
        self.takes_config = len(parameters) > 1
        self.required: dict[str, None] = {}
        self.optional = _NONE
        context_type = _annotation(parameters[0], body, strict=True)
        if isinstance(context_type, type) and issubclass(context_type, base):
            named, free = needs_of(context_type, base)
            self.required, self.optional = dict.fromkeys(named), frozenset(free)
        self.model: Callable[[], object] = _no_model
        model = _annotation(parameters[1], body, strict=False) if self.takes_config else None
        if getattr(model, "model_validate", None) is not None:
            # Weakly where possible: a class defined beside its plugin may lead back to it.
            self.model = ref(model) if isinstance(model, type) else partial(_same, model)


def _no_model() -> None:
    return None


def _same(value: object) -> object:
    return value


# Reading a signature takes longer than all the rest of mounting a plugin.
_signatures: "WeakKeyDictionary[Callable[..., object], _Signature]" = WeakKeyDictionary()


def _signature_of(plugin: object, body: Callable[..., object], base: type) -> _Signature:
    if not isinstance(body, FunctionType):
        return _Signature(_parameters(plugin, body), body, base)
    known = _signatures.get(body)
    if known is None or (known.model is not _no_model and known.model() is None):
        known = _signatures[body] = _Signature(_parameters(plugin, body), body, base)
    return known


def _body_of(plugin: object) -> tuple[Callable[..., object], object]:
    """The callable to run and the object that carries `inject` and `Config`."""
    if isinstance(plugin, Handle):
        raise _refused(plugin)
    if isinstance(plugin, type):
        return plugin, plugin
    apply = getattr(plugin, "apply", None)
    if callable(apply):
        return apply, plugin
    if callable(plugin):
        return plugin, plugin
    raise _refused(plugin)


def _refused(plugin: object) -> TypeError:
    return TypeError(
        f"{plugin!r} is no plugin; give a function (ctx, config), a Service class, or an object "
        "or module with `apply`"
    )


def _parameters(plugin: object, body: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        signature = inspect.signature(body)
    except (TypeError, ValueError):
        raise _refused(plugin) from None
    positional: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            positional += [parameter] * (2 - len(positional))
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            positional.append(parameter)
        elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise _refused(plugin)
    needed = [parameter for parameter in positional if parameter.default is parameter.empty]
    if not positional or len(needed) > 2:
        raise _refused(plugin)
    return positional[:2]


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


def _declared(plugin: object, owner: object) -> Mapping[str, object]:
    inject = getattr(owner, "inject", None)
    if inject is None or callable(inject):
        return {}
    if isinstance(inject, Mapping):
        return inject
    if isinstance(inject, Iterable) and not isinstance(inject, str):
        return dict.fromkeys(inject)
    raise TypeError(f"`inject` of {plugin!r} must be a list of keys or a mapping, not {inject!r}")


def needs_of(context_type: type, base: type) -> tuple[list[str], set[str]]:
    """The annotated names of a context class: required ones in order, and optional ones."""
    required: dict[str, None] = {}
    optional: set[str] = set()
    for cls in reversed(context_type.__mro__):
        if not issubclass(cls, base) or cls is base:
            continue
        for name in _annotated_names(cls):
            if name.startswith("_") or hasattr(base, name):
                continue
            default = vars(cls).get(name, _MISSING)
            if default is _MISSING and name not in optional:
                required[name] = None
            elif default is None:
                required.pop(name, None)
                optional.add(name)
    return list(required), optional


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
    found = next(
        (space[first] for space in _namespaces(function) if first in space),
        _MISSING,
    )
    for part in rest:
        found = getattr(found, part, _MISSING)
    return found


def _namespaces(function: FunctionType) -> Iterable[Mapping[str, object]]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    closure: dict[str, object] = {}
    for name, cell in cells:
        try:
            closure[name] = cell.cell_contents
        except ValueError:
            continue
    yield closure
    frame = sys._getframe()
    above = frame.f_back
    while above is not None:
        if function.__code__ in above.f_code.co_consts:
            yield above.f_locals
        above = above.f_back
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
