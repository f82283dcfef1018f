"""The sandbox seam: `ctx.sandbox`. Upstream: packages/sandbox/sandbox/src/service.ts.

It decides what a command of an agent may change, and finds a mechanism that enforces it. Network
access is not governed.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Literal, Protocol, TypeAlias

from dsh_agent import Agent
from dsh_cordis import Context, Service
from dsh_llm import AbortSignal
from dsh_session import Session, SessionEventData, register_session_event
from dsh_system_prompt import AssemblyContext, SystemPrompt, context_order

from . import texts
from ._confining import writable_folders
from ._settings import SandboxSettings
from .bubblewrap import Bubblewrap
from .errors import SandboxError
from .landlock import Landlock
from .types import Finished

SandboxMode: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]
MODES: Final[tuple[SandboxMode, ...]] = ("read-only", "workspace-write", "danger-full-access")
"""Narrowest first."""


@register_session_event
class SandboxModeEvent(SessionEventData, frozen=True, kw_only=True):
    """The sandbox mode of this session from here on; the last one counts."""

    type: ClassVar[str] = "sandbox/mode"
    mode: str
    """One of `read-only`, `workspace-write`, `danger-full-access`."""
    source: str | None = None
    """Who chose it, such as `delegation`; absent: a person."""


@dataclass(frozen=True)
class SandboxPolicy:
    """What one command may change."""

    mode: SandboxMode
    root: str
    """Real path of the workspace."""

    def may_change(self, path: str) -> bool:
        """True if the file of this real path may be changed, made or removed."""
        if self.mode == "danger-full-access":
            return True
        return any(
            path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
            for folder in writable_folders(self)
        )


class Confinement(Protocol):
    """A command that is confined, and how to read its end."""

    @property
    def argv(self) -> Sequence[str]:
        """To run in the place of the command."""
        ...

    @property
    def enforcement(self) -> Literal["full", "partial"]:
        """Whether the mechanism enforces the whole policy."""
        ...

    def runner_failed(self, end: Finished) -> str | None:
        """Why the mechanism itself failed; the command has then not run. Asked before `denied`."""
        ...

    def denied(self, end: Finished) -> bool:
        """True if the end looks like a refused file access."""
        ...


class Approves(Protocol):
    """The approval service, as far as it is used here."""

    async def request(
        self,
        agent: Agent,
        tool_name: str,
        call_id: str | None = None,
        reason: str | None = None,
        signal: AbortSignal | None = None,
    ) -> str:
        """Ask a person; `allowed-once` allows."""
        ...


class Mechanism(Protocol):
    """A way to confine commands."""

    @property
    def enforcement(self) -> Literal["full", "partial"]:
        """Whether it enforces whole policies."""
        ...

    async def usable(self, policy: SandboxPolicy) -> bool:
        """True if it works on this machine, out of reach of what it is to confine."""
        ...

    def confine(self, argv: Sequence[str], policy: SandboxPolicy) -> Confinement:
        """Wrap a command."""
        ...


class _Unconfined:
    """A command in the mode that confines nothing."""

    enforcement: Literal["full", "partial"] = "full"

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = argv

    def runner_failed(self, end: Finished) -> str | None:
        return None

    def denied(self, end: Finished) -> bool:
        return False


class Sandbox(Service):
    """Confines the commands of agents, or refuses them; never lets one run unconfined."""

    key: ClassVar[str] = "sandbox"

    def __init__(self, ctx: Context, config: SandboxSettings | None = None) -> None:
        super().__init__(ctx)
        if config is None:
            from .config import SandboxConfig  # see `_settings`

            config = SandboxConfig()
        self._config = config
        self._mechanisms: list[Mechanism] = [Bubblewrap(), Landlock()]

    def mode_of(self, session: Session | None) -> SandboxMode:
        """The mode of a session: its last `sandbox/mode` event, else the configuration."""
        for event in reversed(session.events if session is not None else ()):
            if isinstance(event.data, SandboxModeEvent):
                # A mode that this build does not know must not widen anything.
                return next((mode for mode in MODES if mode == event.data.mode), "read-only")
        return self._config.mode

    def set_mode(self, agent: Agent, mode: SandboxMode, *, source: str | None = None) -> None:
        """Record a mode for an agent's session, from its next command on."""
        _ = agent.session.append(SandboxModeEvent(mode=mode, source=source))

    def policy(self, agent: Agent | None, override: SandboxMode | None = None) -> SandboxPolicy:
        """What the next command of an agent may change.

        Args:
            agent: Its session decides mode and root; without one the configuration does.
            override: A wider mode that was approved for this command.
        """
        session = None if agent is None else agent.session
        cwd = None if session is None else session.header.cwd
        root = cwd or str(self._config.root or Path.cwd())
        return SandboxPolicy(override or self.mode_of(session), os.path.realpath(root))

    @property
    def escalatable(self) -> bool:
        """True if there is somebody to ask for wider access."""
        return self.ctx.get("approval") is not None

    async def decide(
        self,
        agent: Agent | None,
        tool_name: str,
        *,
        call_id: str,
        permissions: SandboxMode | None,
        justification: str | None,
        signal: AbortSignal,
    ) -> SandboxPolicy:
        """The policy of one call, which may ask for wider access than its session has.

        Args:
            agent: Who calls.
            tool_name: For the question.
            call_id: For the question.
            permissions: The wider mode asked for; `None` asks for nothing.
            justification: Why; together with `permissions` only.
            signal: Of the call.

        Raises:
            SandboxError: The request is malformed, or was not allowed.
        """
        current = self.mode_of(None if agent is None else agent.session)
        wider = escalation(current, permissions, justification)
        if wider is None:
            return self.policy(agent)
        answer = "unavailable"
        approval: Approves | None = self.ctx.get("approval")
        if approval is not None and agent is not None:
            reason = f"wider file access ({wider}): {justification}"
            answer = await approval.request(
                agent, tool_name, call_id=call_id, reason=reason, signal=signal
            )
        if answer != "allowed-once":
            raise SandboxError(
                f"{tool_name} was not run: {wider} access was not allowed ({answer}); "
                "work within the current mode",
                "SANDBOX_ESCALATION",
            )
        return self.policy(agent, wider)

    async def confine(self, argv: Sequence[str], policy: SandboxPolicy) -> Confinement:
        """The command to run in the place of `argv`.

        Raises:
            SandboxError: Nothing on this machine can confine it.
        """
        if policy.mode == "danger-full-access":
            return _Unconfined(argv)
        for mechanism in self._mechanisms:
            if mechanism.enforcement == "partial" and not self._config.accept_partial:
                continue
            if await mechanism.usable(policy):
                return mechanism.confine(argv, policy)
        raise SandboxError(
            f"the command was not run: nothing on this machine can confine it to {policy.mode} "
            "mode; install bubblewrap and allow user namespaces, or choose another mode",
            "SANDBOX_UNAVAILABLE",
        )


def escalation(
    current: SandboxMode, wanted: SandboxMode | None, justification: str | None
) -> SandboxMode | None:
    """The wider mode that a call asks for; `None` if it asks for none.

    Raises:
        SandboxError: Only one of both is given, or the mode is not wider than the current one.
    """
    if wanted is None and justification is None:
        return None
    if wanted is None or not (justification or "").strip():
        raise SandboxError(
            "sandbox_permissions and justification belong together; give both or neither",
            "SANDBOX_ESCALATION",
        )
    if MODES.index(wanted) <= MODES.index(current):
        raise SandboxError(
            f"{wanted} is not wider than the current mode {current}; leave sandbox_permissions out",
            "SANDBOX_ESCALATION",
        )
    return wanted


class _PromptNeeds(Context):
    sandbox: Sandbox
    system_prompt: SystemPrompt


def sandbox_context(ctx: _PromptNeeds) -> None:
    """Tell the model the current mode, as part of the runtime context."""

    def text(assembly: AssemblyContext) -> str:
        session = getattr(assembly.agent, "session", None)
        mode = ctx.sandbox.mode_of(session)
        if mode == "workspace-write":
            root = getattr(getattr(session, "header", None), "cwd", None)
            return texts.SANDBOX_WORKSPACE.format(root=root or "the workspace")
        return texts.SANDBOX_READ_ONLY if mode == "read-only" else texts.SANDBOX_OPEN

    ctx.system_prompt.context("sandbox:policy", context_order("sandbox:policy"), text)
