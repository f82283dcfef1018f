"""The tool registry: `ctx.tools`. Upstream: packages/tools/tools/src/registry.ts."""

from collections.abc import Collection, Coroutine
from typing import Any, ClassVar, Literal

from dsh_cordis import Context, Handle, Service
from dsh_llm import ToolSchema
from dsh_system_prompt import AssemblyContext, SystemPrompt, ToolsContribution

from ._declaration import check_timeout
from ._visibility import Guard, ToolViews
from .errors import ToolDeclarationError
from .events import ToolsChange
from .json_schema import assert_json_schema
from .scheduler import ToolScheduler
from .types import ToolDefinition, ToolExecutionInput, ToolExecutionResult, ToolOutput


class Needs(Context):
    """What the registry works with."""

    system_prompt: SystemPrompt


class ToolRegistry(Service):
    """The tools of a tree, who sees which, and how a call runs.

    Registrations, restrictions and guards belong to the calling context: through an agent's context
    they concern that agent, else everyone; they end with the caller's plugin.
    """

    key: ClassVar[str] = "tools"

    def __init__(self, ctx: Needs) -> None:
        super().__init__(ctx)
        self._views = ToolViews(lambda: ctx.emit(ToolsChange()))
        self.scheduler = ToolScheduler(ctx, self._views)
        """The stages of a call one by one, for loops that overlap bodies."""
        ctx.system_prompt.tools(self._contribute)

    def register(self, definition: ToolDefinition) -> Handle:
        """Make a tool visible.

        Raises:
            ToolDeclarationError: Output or timeout are malformed.
            JsonSchemaError: The output schema leaves the subset.
            ToolRegistrationError: The name is reserved, or taken in this layer.
        """
        _check_definition(definition)
        return self._views.register(self.ctx, definition)

    def restrict(
        self, *, allow: Collection[str] | None = None, deny: Collection[str] | None = None
    ) -> Handle:
        """Hide inherited tools from the calling scope and those below it.

        Args:
            allow: Only these stay; empty hides all.
            deny: These go.

        Raises:
            ToolRegistrationError: No scope, no list, or names that the scope does not inherit.
        """
        return self._views.restrict(self.ctx, allow, deny)

    def guard(self, guard: Guard) -> Handle:
        """Let a function deny calls: it returns a reason, or `None` to say nothing."""
        return self._views.guard(self.ctx, guard)

    def get(self, name: str, scope: object | None = None) -> ToolDefinition | None:
        """The tool that a viewer means by `name`; without scope, among those for everyone."""
        return self._views.visible(scope).get(name)

    def names(self, scope: object | None = None) -> list[str]:
        """Names of the tools a viewer sees."""
        return list(self._views.visible(scope))

    def schemas(self, scope: object | None = None) -> tuple[ToolSchema, ...]:
        """What a model is told about the tools a viewer sees.

        Raises:
            ToolDeclarationError: The parameters of a tool are no lossless JSON.
        """
        return tuple(self._views.current(scope).contribution.schemas)

    def execution_mode(self, call: ToolExecutionInput) -> Literal["parallel", "exclusive"]:
        """Whether a call may overlap with others. Never raises; doubt means exclusive."""
        definition = self._views.visible(call.agent).get(call.name)
        classify = None if definition is None else definition.is_concurrency_safe
        try:
            safe = classify is not None and classify(call.arguments) is True
        except Exception:  # noqa: BLE001  # a broken classifier makes its tool exclusive
            return "exclusive"
        return "parallel" if safe else "exclusive"

    def execute(self, call: ToolExecutionInput) -> Coroutine[Any, Any, ToolExecutionResult]:
        """Run a call through all stages. Failures of tools and policies are results."""
        # No coroutine of its own: it would only hand on the other one.
        return self.scheduler.execute(call)

    def _contribute(self, assembly: AssemblyContext) -> ToolsContribution:
        return self._views.current(assembly.scope).contribution


def _check_definition(definition: ToolDefinition) -> None:
    output: object = definition.output
    where = f"tool {definition.name!r}"
    if not isinstance(output, ToolOutput):
        raise ToolDeclarationError(f"{where}: output must be a ToolOutput, not {output!r:.80}")
    if not callable(output.render):
        raise ToolDeclarationError(f"{where}: output.render must be callable")
    if output.presentation_meta is not None and not callable(output.presentation_meta):
        raise ToolDeclarationError(f"{where}: output.presentation_meta must be callable")
    assert_json_schema(output.schema, f"the output of {where}")
    check_timeout(definition.timeout_ms, where)
