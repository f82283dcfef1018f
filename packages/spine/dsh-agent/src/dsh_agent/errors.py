"""Errors of the agent handle, its registry and its driver.

`AgentBaseError`
├── `AgentBusyError`            AGENT_BUSY           maintenance asked of an agent that runs
├── `AgentDisposedError`        AGENT_DISPOSED       used after the registry let it go
├── `AgentSelfWaitError`        AGENT_SELF_WAIT      waiting for one's own end
├── `AgentCancelledError`       AGENT_CANCELLED      maintenance ended by `cancel`; `.cause`
├── `AgentCreationError`        CREATION_ABORTED, OWNER_DISPOSED, LOOP_INACTIVE, NO_PERSISTENCE, ...
├── `AgentOptionsError`         INVALID_MAX_TOKENS   refused before anything exists
├── `AgentRegistryError`        AGENT_EXISTS, AGENT_ID_MISMATCH, AGENT_NOT_LIVE, ...
├── `AgentRequestError`         ROUTE_CHANGED, NO_MODEL
├── `InboxError`                INBOX_DUPLICATE_MESSAGE, INBOX_INVALID_MESSAGE, INBOX_INVALID_FOLD
└── `InitiatorError`            NO_INITIATOR, INITIATOR_DISPOSED

`AgentRouteError` (ROUTE_CHANGED, NO_MODEL) is an `LlmError`: it fails a request, not the agent.
"""

from dsh_brand import HarnessError
from dsh_llm import LlmError


class AgentBaseError(HarnessError):
    """Base of everything that the agent packages raise."""


class AgentBusyError(AgentBaseError):
    """Maintenance needs an idle agent."""

    def __init__(self, agent_id: str) -> None:
        super().__init__(
            f"agent {agent_id!r} is busy; wait for `agent.when_idle()` and try again", "AGENT_BUSY"
        )


class AgentDisposedError(AgentBaseError):
    """The agent has left the registry."""

    def __init__(self, agent_id: str, action: str) -> None:
        super().__init__(
            f"agent {agent_id!r} is disposed and cannot {action}; "
            "resume its session with `ctx.agents.resume()`",
            "AGENT_DISPOSED",
        )


class AgentSelfWaitError(AgentBaseError):
    """A wait that could never end, because the waiting code is what is waited for."""

    def __init__(self, agent_id: str) -> None:
        super().__init__(
            f"work of agent {agent_id!r} waits for that agent to become idle; "
            "start the wait in a task of its own plugin instead",
            "AGENT_SELF_WAIT",
        )


class AgentCancelledError(AgentBaseError):
    """Maintenance was cut short by `agent.cancel()`."""

    def __init__(self, agent_id: str, cause: object) -> None:
        super().__init__(
            f"the maintenance of agent {agent_id!r} was cancelled ({cause!r})", "AGENT_CANCELLED"
        )
        self.cause = cause


class AgentCreationError(AgentBaseError):
    """Creating or resuming an agent failed; nothing of it is left alive."""


class AgentOptionsError(AgentBaseError):
    """An option was refused before anything existed."""


class AgentRegistryError(AgentBaseError):
    """The registry refused an entry or its announcement."""


class AgentRouteError(LlmError):
    """A model request cannot be made as proposed; the turn ends with this code."""


class InboxError(AgentBaseError):
    """An inbox operation or a stored inbox was refused."""


class InitiatorError(AgentBaseError):
    """There is no initiator, or its registry is gone."""
