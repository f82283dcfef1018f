"""Configuration of the loop."""

from collections.abc import Mapping
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Launch(BaseModel):
    """Which session an agent is started over."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    session_id: str | None = Field(default=None, min_length=1)
    """Resume this session if it is stored, else create it."""
    resume_session_id: str | None = Field(default=None, min_length=1)
    """Resume this session; it has to be stored."""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.session_id is not None and self.resume_session_id is not None:
            raise ValueError("give session_id or resume_session_id, not both")
        return self

    @property
    def exact_id(self) -> str | None:
        """The session that is named, if one is."""
        return self.session_id or self.resume_session_id


class ConfiguredAgent(Launch):
    """An agent that starts with the loop."""

    id: str = Field(min_length=1)
    """A label; a session that is not named gets the id `<label>-session-<uuid>`."""
    provider: str | None = None
    """Route of its model."""
    model: str | None = None
    """Name of the model on that route."""
    reasoning_effort: str | None = None
    """One of the model's efforts."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Output cap of each request, in tokens."""
    cwd: str | None = None
    """Working folder of a new session."""


class Config(BaseModel):
    """How agents run their tools, how patient the loop is, and who starts with it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_parallel_tool_calls: int = Field(default=10, ge=1)
    """How many tool bodies of one agent may overlap."""
    cancel_grace_ms: int | None = Field(default=10_000, ge=0)
    """How long work may take to end by itself after an abort; `None` waits without bound."""
    abandon_grace_ms: int = Field(default=5_000, ge=0)
    """How long work may take to end once it was cancelled natively; then it is given up."""
    listener_grace_ms: int = Field(default=5_000, ge=0)
    """How long listener tasks may go on after an agent went idle; then they are cancelled."""
    agents: tuple[ConfiguredAgent, ...] = ()
    """Agents that start with the loop."""
    launch: Mapping[str, Launch] = Field(default_factory=dict)
    """Sessions by label, in place of those that `agents` names; what a command line sets."""

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        labels = [agent.id for agent in self.agents]
        exact = [launch.exact_id for _, launch in self.launches() if launch.exact_id is not None]
        for what, values in (("label", labels), ("session id", exact)):
            twice = next((value for value in values if values.count(value) > 1), None)
            if twice is not None:
                raise ValueError(f"the {what} {twice!r} is given to two agents; name each once")
        return self

    def launches(self) -> tuple[tuple[ConfiguredAgent, Launch], ...]:
        """Each configured agent with what it is started over."""
        return tuple((agent, self.launch.get(agent.id, agent)) for agent in self.agents)
