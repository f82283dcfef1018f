"""The prompt service, `ctx.system_prompt`.

Upstream: packages/prompt/system-prompt/src/service.ts.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import msgspec

from dsh_brand import utf16_key
from dsh_cordis import Context, Handle, ScopedTable, Service, Target
from dsh_llm import AbortSignal, ToolSchema

from . import texts
from .errors import CompletePromptError, PromptRegistrationError
from .events import SystemPromptAssemble, SystemPromptChange
from .interpolation import VARIABLE_NAME
from .positions import section_order
from .tool_order import order_tools
from .types import (
    AssemblyContext,
    PromptAssembly,
    PromptContext,
    PromptSection,
    TextProvider,
    ToolsContribution,
    ToolsProvider,
)

if TYPE_CHECKING:  # pydantic is loaded when a prompt service is mounted, not before
    from .config import Config as PromptConfig


class _ConfigModel:
    """Loads the model when the kernel asks for it."""

    def __get__(self, instance: object, owner: type) -> "type[PromptConfig]":
        from .config import Config

        return Config


class _Section(msgspec.Struct, frozen=True):
    name: str
    order: float
    provider: TextProvider
    complete: bool
    interpolate: bool
    owner: str


class _Context(msgspec.Struct, frozen=True):
    name: str
    order: float
    provider: TextProvider


class SystemPrompt(Service):
    """Sections, contexts, variables and tool schemas, and their assembly for one agent.

    Registrations belong to the calling context: through an agent's context they concern that
    agent, else everyone; they end with the caller's plugin. A nearer entry of a name shadows a
    farther one.
    """

    key: ClassVar[str] = "system_prompt"
    Config: ClassVar[_ConfigModel] = _ConfigModel()

    def __init__(self, ctx: Context, config: "PromptConfig | None" = None) -> None:
        super().__init__(ctx)
        self._config = type(self).Config() if config is None else config
        self._events = ctx

        def changed() -> None:
            ctx.emit(SystemPromptChange())

        self._sections = ScopedTable[_Section](duplicate=_duplicate, on_change=changed)
        self._contexts = ScopedTable[_Context](duplicate=_duplicate, on_change=changed)
        self._variables = ScopedTable[TextProvider](duplicate=_duplicate, on_change=changed)
        self._tools = ScopedTable[ToolsProvider](duplicate=_duplicate, on_change=changed)
        self._suppressions = ScopedTable[None](duplicate=_duplicate, on_change=changed)
        if self._config.include_harness_identity:
            name = "harness:identity"
            self.section(name, section_order(name), texts.IDENTITY, interpolate=False)
        persona = "deployment:persona"
        self.section(persona, section_order(persona), self._config.persona)

    def section(
        self,
        name: str,
        order: float,
        text: TextProvider,
        *,
        complete: bool = False,
        interpolate: bool = True,
    ) -> Handle:
        """Add a section to the system prompt.

        Args:
            name: Unique in its layer.
            order: Ascending; ties by name. Shipped positions: `section_order`.
            text: Fixed, or a function of the assembly.
            complete: This section is the whole prompt.
            interpolate: Fill ``{{name}}`` in the text.

        Raises:
            TypeError: The order is not finite.
            PromptRegistrationError: The name is taken in this layer.
        """
        _check_order(name, order)
        owner = self.ctx.fiber.name or ""
        entry = _Section(name, order, text, complete, interpolate, owner)
        return self._sections.set(self.ctx, name, entry)

    def context(self, name: str, order: float, provider: TextProvider) -> Handle:
        """Add a fact of the moment; it reaches the model as a message when it changes.

        Raises:
            TypeError: The order is not finite.
            PromptRegistrationError: The name is taken in this layer.
        """
        _check_order(name, order)
        return self._contexts.set(self.ctx, name, _Context(name, order, provider))

    def variable(self, name: str, value: TextProvider) -> Handle:
        """Define ``{{name}}`` for sections; a provider's `None` means that it has no value.

        Raises:
            PromptRegistrationError: The name is malformed, or taken in this layer.
        """
        if not VARIABLE_NAME.fullmatch(name):
            raise PromptRegistrationError(
                f"variable name {name!r} must match ^[a-z][a-z0-9_]*$, such as 'cwd'"
            )
        return self._variables.set(self.ctx, name, value)

    def tools(self, provider: ToolsProvider) -> Handle:
        """Contribute tool schemas; providers of all layers contribute, nothing is shadowed."""
        return self._tools.add(self.ctx, provider)

    def suppress_runtime_context(self) -> Handle:
        """Give no facts of the moment in the calling scope."""
        return self._suppressions.add(self.ctx, None)

    async def assemble(
        self,
        scope: object | None,
        signal: AbortSignal | None = None,
        agent: object | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> PromptAssembly:
        """Assemble everything a request of one agent says besides the conversation.

        Args:
            scope: The agent's scope key.
            signal: Of the turn, for listeners.
            agent: For providers.
            variables: Values that win over registered ones.

        Raises:
            CompletePromptError: Two visible sections each are the whole prompt.
            ToolOrderError: The tools cannot be ordered.
            Exception: What a provider or listener raised.
        """
        values = self._values(scope, signal, agent, variables or {})
        known = {name: value for name, value in values.items() if value is not None}
        context = AssemblyContext(scope=scope, signal=signal, agent=agent, variables=known)
        sections = list(self._sections.view(scope).values())
        contexts = list(self._contexts.view(scope).values())
        tool_providers = self._tools.entries(scope)
        complete = _the_complete(sections)
        silent = not self._config.include_runtime_context or bool(self._suppressions.entries(scope))
        texts_by_name = {each.name: _text(each.provider, context) for each in sections}
        contributions = [provider(context) for provider in tool_providers]
        assembly = PromptAssembly(
            sections=_sorted_sections(sections, texts_by_name),
            contexts=() if silent else _sorted_contexts(contexts, context),
            tools=self._ordered_tools(contributions),
            variables=values,
            section_owners={each.name: each.owner for each in sections},
            tool_owners={k: v for each in contributions for k, v in each.owners.items()},
        )
        assembly = await self._intercepted(assembly, context)
        if complete is not None:
            sole = (_section(complete, texts_by_name[complete.name]),)
            assembly = msgspec.structs.replace(assembly, sections=sole)
        return msgspec.structs.replace(assembly, contexts=()) if silent else assembly

    async def _intercepted(
        self, assembly: PromptAssembly, context: AssemblyContext
    ) -> PromptAssembly:
        async def inner() -> PromptAssembly:
            return assembly

        event = SystemPromptAssemble(context=context)
        return await self._events.waterfall(event, inner, target=Target(context.scope))

    def _values(
        self,
        scope: object | None,
        signal: AbortSignal | None,
        agent: object | None,
        given: Mapping[str, str],
    ) -> dict[str, str | None]:
        values: dict[str, str | None] = {}
        # Shadowed providers run too: each layer is a table of its own, read when it is reached.
        for layer in self._variables.chain_layers(scope):
            for name, provider in list(layer.named.items()):
                known = {key: value for key, value in values.items() if value is not None}
                context = AssemblyContext(scope=scope, signal=signal, agent=agent, variables=known)
                values[name] = _value(provider, context)
        return {**values, **given}

    def _ordered_tools(self, contributions: list[ToolsContribution]) -> tuple[ToolSchema, ...]:
        schemas = [schema for each in contributions for schema in each.schemas]
        known = {
            name
            for each in contributions
            for name in (
                [schema.name for schema in each.schemas]
                if each.known_names is None
                else each.known_names
            )
        }
        return order_tools(schemas, self._config.tool_order, known)


def _check_order(name: str, order: float) -> None:
    if isinstance(order, bool) or not isinstance(order, int | float) or not math.isfinite(order):
        raise TypeError(f"the order of {name!r} must be a finite number, not {order!r}")


def _duplicate(name: str) -> Exception:
    return PromptRegistrationError(
        f"{name!r} is already registered in this scope; dispose that registration first, or "
        "shadow it in a nearer scope, such as an agent's"
    )


def _value(provider: TextProvider, context: AssemblyContext) -> str | None:
    return provider if isinstance(provider, str) else provider(context)


def _text(provider: TextProvider, context: AssemblyContext) -> str:
    return _value(provider, context) or ""


def _the_complete(sections: list[_Section]) -> _Section | None:
    complete = [section for section in sections if section.complete]
    if len(complete) > 1:
        names = ", ".join(repr(section.name) for section in complete)
        raise CompletePromptError(
            f"sections {names} each replace the whole prompt; only one may be visible"
        )
    return complete[0] if complete else None


def _section(entry: _Section, text: str) -> PromptSection:
    return PromptSection(
        name=entry.name, order=entry.order, text=text, interpolate=entry.interpolate
    )


def _sorted_sections(
    entries: list[_Section], texts_by_name: Mapping[str, str]
) -> tuple[PromptSection, ...]:
    ordered = sorted(entries, key=_position)
    return tuple(_section(entry, texts_by_name[entry.name]) for entry in ordered)


def _sorted_contexts(
    entries: list[_Context], context: AssemblyContext
) -> tuple[PromptContext, ...]:
    return tuple(
        PromptContext(name=entry.name, order=entry.order, text=_text(entry.provider, context))
        for entry in sorted(entries, key=_position)
    )


def _position(entry: _Section | _Context) -> tuple[float, bytes]:
    return entry.order, utf16_key(entry.name)
