"""The prompt service, `ctx.system_prompt`.

Upstream: packages/prompt/system-prompt/src/service.ts.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import msgspec

from dsh_cordis import Context, Handle, Service, Target
from dsh_llm import AbortSignal

from . import texts
from ._plan import ContextEntry, Plan, Section
from .errors import PromptRegistrationError
from .events import SystemPromptAssemble, SystemPromptChange
from .interpolation import VARIABLE_NAME
from .positions import section_order
from .scopes import ScopeCache, WatchedTable, walk
from .types import AssemblyContext, PromptAssembly, TextProvider, ToolsProvider

if TYPE_CHECKING:  # pydantic is loaded when a prompt service is mounted, not before
    from .config import Config as PromptConfig


class _ConfigModel:
    """Loads the model when the kernel asks for it."""

    def __get__(self, instance: object, owner: type) -> "type[PromptConfig]":
        from .config import Config

        return Config


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
            self._plans.clear()
            self._variable_layers.clear()
            ctx.emit(SystemPromptChange())

        self._sections = WatchedTable[Section](duplicate=_duplicate, on_change=changed)
        self._contexts = WatchedTable[ContextEntry](duplicate=_duplicate, on_change=changed)
        self._variables = WatchedTable[TextProvider](duplicate=_duplicate, on_change=changed)
        self._tools = WatchedTable[ToolsProvider](duplicate=_duplicate, on_change=changed)
        self._suppressions = WatchedTable[None](duplicate=_duplicate, on_change=changed)
        tables = (self._sections, self._contexts, self._tools, self._suppressions)
        self._plans = ScopeCache(self._plan, tables)
        self._variable_layers = ScopeCache(self._variables.chain_layers, (self._variables,))
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
        entry = Section(name, order, text, complete, interpolate, owner)
        return self._sections.set(self.ctx, name, entry)

    def context(self, name: str, order: float, provider: TextProvider) -> Handle:
        """Add a fact of the moment; it reaches the model as a message when it changes.

        Raises:
            TypeError: The order is not finite.
            PromptRegistrationError: The name is taken in this layer.
        """
        _check_order(name, order)
        return self._contexts.set(self.ctx, name, ContextEntry(name, order, provider))

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
        plan = self._plans.get(scope)
        context = AssemblyContext(scope=scope, signal=signal, agent=agent, variables=_known(values))
        made = plan.make(context, values)
        if not self._events.has_listeners(SystemPromptAssemble, scope):
            return made.final

        async def inner() -> PromptAssembly:
            return made.assembly

        event = SystemPromptAssemble(context=context)
        assembly = await self._events.waterfall(event, inner, target=Target(scope))
        assembly = plan.completed(assembly, made.texts)
        return msgspec.structs.replace(assembly, contexts=()) if plan.silent else assembly

    def _plan(self, scope: object | None) -> Plan:
        return Plan(
            self._sections.view(scope).values(),
            self._contexts.view(scope).values(),
            self._tools.entries(scope),
            self._config.tool_order,
            silent=not self._config.include_runtime_context
            or bool(self._suppressions.entries(scope)),
        )

    def _values(
        self,
        scope: object | None,
        signal: AbortSignal | None,
        agent: object | None,
        given: Mapping[str, str],
    ) -> dict[str, str | None]:
        values: dict[str, str | None] = {}
        # Shadowed providers run too: each layer is a table of its own, read when it is reached.
        for layer in walk(lambda: self._variable_layers.get(scope)):
            for name, provider in layer.named.items():
                if isinstance(provider, str):
                    values[name] = provider
                    continue
                context = AssemblyContext(
                    scope=scope, signal=signal, agent=agent, variables=_known(values)
                )
                values[name] = provider(context)
        values.update(given)
        return values


def _known(values: Mapping[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}


def _check_order(name: str, order: float) -> None:
    if isinstance(order, bool) or not isinstance(order, int | float) or not math.isfinite(order):
        raise TypeError(f"the order of {name!r} must be a finite number, not {order!r}")


def _duplicate(name: str) -> Exception:
    return PromptRegistrationError(
        f"{name!r} is already registered in this scope; dispose that registration first, or "
        "shadow it in a nearer scope, such as an agent's"
    )
