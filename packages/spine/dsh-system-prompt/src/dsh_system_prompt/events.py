"""Events of prompt assembly."""

from typing import ClassVar

from dsh_cordis import Emit, Waterfall

from .types import AssemblyContext, PromptAssembly


class SystemPromptAssemble(Waterfall[PromptAssembly], frozen=True):
    """A prompt was assembled; the answer is what is used. Scoped to the agent."""

    name: ClassVar[str] = "system-prompt/assemble"
    scoped: ClassVar[bool] = True
    context: AssemblyContext
    """For whom it is assembled, with all variables."""


class SystemPromptChange(Emit, frozen=True):
    """A registration came or went. A raising listener refuses a registration."""

    name: ClassVar[str] = "system-prompt/change"
    vetoing: ClassVar[bool] = True
