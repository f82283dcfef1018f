"""Seeded trouble: a model, tools, listeners and users that do something awkward now and then."""

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup
from typing_extensions import override

from dsh_agent import (
    Agent,
    AgentAssistantStream,
    AgentBaseError,
    AgentError,
    AgentHandle,
    AgentRequest,
    AgentRequestError,
    AgentSelfWaitError,
    AgentStatusChanged,
    Enter,
    InboxClaimed,
    InboxInserted,
    ModelSelection,
    PreStep,
    PreStepDecision,
    Reject,
    Retry,
    TurnStopping,
)
from dsh_agent_loop.agent import LoopAgent
from dsh_agent_loop.phase import Maintenance
from dsh_brand import JsonValue
from dsh_cordis import Context, Next
from dsh_llm import (
    AbortSignal,
    GenerateOptions,
    LlmCallConfig,
    LlmStreamEvent,
    Message,
    StreamChunk,
    create_user_message,
)
from dsh_session import HookCancel, ReplaceOp, SessionEventAppended, UserMessageEvent
from dsh_system_prompt import PromptAssembly, SystemPromptAssemble
from dsh_tools import (
    Block,
    Deny,
    PostToolDecision,
    PreToolDecision,
    ToolDefinition,
    ToolExecutionResult,
    ToolOutput,
    ToolRunContext,
    ToolsExecute,
    ToolsPostExecute,
    ToolsPreExecute,
    ToolsResult,
)

from .clock import ManualClock
from .stack import ScriptedModel, Step, call, cut, fail, say
from .store import SimulatedDisk

TOOLS: tuple[str, ...] = (
    "quick",
    "slow",
    "waits",
    "deaf",
    "scope",
    "stubborn",
    "raises",
    "ends",
    "notes",
    "meddles",
    "waits_for_itself",
)
"""Names of the tools; all but `slow`, `ends` and `meddles` may overlap."""


class SimulatedFailure(Exception):  # noqa: N818  # what the simulated listeners and tools raise
    """Raised on purpose."""


class Mischief:
    """The one source of chance of a simulation, and what it may do at any moment."""

    def __init__(self, seed: int, rate: float) -> None:
        self.dice = random.Random(seed)
        self.rate = rate
        """How likely something happens at a place where something may happen."""
        self.calm = False
        """Nothing happens any more."""
        self.done: list[str] = []
        """What was done, for people."""
        self.clock = ManualClock()
        self.disk = SimulatedDisk()
        self.released = anyio.Event()
        """Stubborn tool bodies end when it is set."""
        self.handle: AgentHandle | None = None
        self.users: TaskGroup | None = None
        """Where users do what takes them time."""
        self.disposing = False
        """The agent of the moment is on its way out."""
        self.kept_wakes: dict[str, int] = {}
        """Messages whose wake must lead to a turn behind the seq beside them."""
        self.crashed = False
        """The process dies here."""
        self._count = 0
        self._facts: dict[str, str | None] = {}

    @property
    def agent(self) -> Agent | None:
        """The agent of the moment."""
        return None if self.handle is None else self.handle.agent

    def note(self, what: str) -> None:
        """Write down what is done."""
        self.done.append(what)

    def likely(self, rate: float | None = None) -> bool:
        """Whether something happens now."""
        return not self.calm and self.dice.random() < (self.rate if rate is None else rate)

    def text(self, word: str) -> str:
        """A text that occurs once."""
        self._count += 1
        return f"{word}{self._count}"

    def facts(self, word: str) -> str | None:
        """What prompt or context say now; `None` when they say nothing."""
        if self.likely(0.1):
            self._facts[word] = self.dice.choice((None, "one", "two"))
        return self._facts.get(word, "one")

    async def pause(self, most: int = 6) -> None:
        """Let others go first, a few times."""
        for _ in range(self.dice.randrange(most + 1)):
            await anyio.lowlevel.checkpoint()

    # ---- deeds -----------------------------------------------------------------------------

    def deed(self, where: str) -> None:
        """What a user, a tool or a listener does to the agent."""
        agent, handle = self.agent, self.handle
        if agent is None or handle is None:
            return
        deeds: dict[str, Callable[[], object]] = {
            "followup": lambda: self._wake(agent, agent.followup, "f"),
            "steer": lambda: self._wake(agent, agent.steer, "s"),
            "inject": lambda: agent.inject(self.text("i")),
            "cancel": lambda: self._cancel(agent),
            "cancel-keep": lambda: agent.cancel(HookCancel(reason="sim"), keep_inbox=True),
            "select": lambda: agent.model.select(
                ModelSelection(provider="test", model=self.dice.choice("mn"))
            ),
            "remove": lambda: agent.inbox.splice("next-turn", 0, 1),
            "maintenance": self._start_maintenance,
            "disk": self._break_disk,
            "dispose": self._dispose,
        }
        weights = [6, 6, 4, 5, 4, 2, 2, 2, 1, 1]
        name = self.dice.choices(list(deeds), weights)[0]
        self.note(f"{name} in {where}")
        deeds[name]()

    def _wake(self, agent: Agent, send: Callable[[Message], None], word: str) -> None:
        message = create_user_message(self.text(word))
        kept = _keeps_wakes(agent)
        send(message)
        if kept and not self.disposing:
            self.kept_wakes[message.id] = agent.session.seq

    def _cancel(self, agent: Agent) -> None:
        self.kept_wakes.clear()
        agent.cancel()

    def _dispose(self) -> None:
        if self.handle is not None:
            self.disposing = True
            self.handle.dispose()

    def _start_maintenance(self) -> None:
        if self.users is not None:
            self.users.start_soon(self._maintain)

    async def _maintain(self) -> None:
        agent = self.agent
        if agent is None or self.calm:
            return

        async def task(signal: AbortSignal) -> None:
            await self.trouble("maintenance")
            await self.pause(10)

        with suppress(AgentBaseError, SimulatedFailure):
            await agent.run_maintenance(task)

    def _break_disk(self) -> None:
        self.disk.failing += self.dice.randrange(1, 4)

    def stir(self, where: str) -> None:
        """In a synchronous place: perhaps a deed, perhaps an error."""
        if not self.likely():
            return
        if self.dice.random() < 0.5:
            self.deed(where)
        else:
            self.note(f"raise in {where}")
            raise SimulatedFailure(where)

    async def trouble(self, where: str) -> None:
        """In an asynchronous place: perhaps a pause, a deed or an error."""
        if self.likely(0.3):
            await self.pause()
        self.stir(where)


def _keeps_wakes(agent: Agent) -> bool:
    """Whether a wake given now is kept until the activity of the moment ends."""
    if not isinstance(agent, LoopAgent) or agent.closing or agent.session.appending:
        return False
    if isinstance(agent.phase, Maintenance):
        return True
    return agent.controller is not None and agent.controller.signal.aborted


# ---- the model -----------------------------------------------------------------------------


class MischievousModel(ScriptedModel):
    """Answers by chance; calm, it says one word."""

    def __init__(self, mischief: Mischief) -> None:
        super().__init__()
        self._mischief = mischief

    @override
    async def stream(self, options: GenerateOptions) -> AsyncIterator[StreamChunk]:
        """Answer one request."""
        self.replies = [self._reply()]
        async for chunk in super().stream(options):
            yield chunk

    def _reply(self) -> Sequence[Step]:
        mischief = self._mischief
        if mischief.calm:
            return say("done")
        dice = mischief.dice
        kinds = ("say", "call", "fail", "cut", "break", "hang")
        kind = dice.choices(kinds, [3, 10, 2, 1, 1, 1])[0]
        reply: list[Step]
        match kind:
            case "call":
                reply = call(*(self._call() for _ in range(dice.randrange(1, 5))))
            case "fail":
                reply = fail()
            case "cut":
                reply = cut("half")
            case "break":
                reply = [*say("half")[:2], self._break]
            case "hang":
                reply = [*say("half")[: dice.randrange(3)], anyio.sleep_forever]
            case _:
                reply = say(mischief.text("word"))
        for place in sorted(dice.sample(range(len(reply)), dice.randrange(2)), reverse=True):
            reply.insert(place, lambda: mischief.trouble("model"))
        return reply

    def _call(self) -> tuple[str, str, str]:
        mischief = self._mischief
        dice = mischief.dice
        call_id = "same" if dice.random() < 0.1 else mischief.text("c")
        name = dice.choice((*TOOLS, "unknown"))
        return call_id, name, dice.choice(("", "{}", "[1", '{"q": 1}'))

    def _break(self) -> None:
        raise SimulatedFailure("the stream broke")


# ---- the tools -----------------------------------------------------------------------------


def add_tools(ctx: Context, mischief: Mischief) -> None:
    """Register a tool of each kind."""
    bodies: dict[str, Callable[[ToolRunContext], Awaitable[object]]] = {
        "quick": lambda run: mischief.pause(2),
        "slow": lambda run: mischief.pause(12),
        "waits": lambda run: run.signal.wait() if mischief.likely(0.3) else mischief.pause(),
        "deaf": lambda run: anyio.sleep_forever() if mischief.likely(0.2) else mischief.pause(),
        "scope": lambda run: anyio.sleep_forever() if mischief.likely(0.3) else mischief.pause(),
        "stubborn": lambda run: _stay(mischief),
        "raises": lambda run: _raise(mischief),
        "ends": lambda run: _note(run, run.conclude_turn),
        "notes": lambda run: _note(
            run, lambda: run.defer_context(create_user_message(mischief.text("n")))
        ),
        "meddles": lambda run: _meddle(mischief),
        "waits_for_itself": lambda run: _wait_for_itself(run, mischief),
    }
    for name, body in bodies.items():
        ctx.tools.register(_definition(name, body))


def _definition(name: str, body: Callable[[ToolRunContext], Awaitable[object]]) -> ToolDefinition:
    async def execute(arguments: JsonValue, run: ToolRunContext) -> str:
        await body(run)
        return "ok"

    exclusive = name in ("slow", "ends", "meddles")
    return ToolDefinition(
        name=name,
        description=name,
        parameters={"type": "object", "properties": {}},
        output=ToolOutput(schema={"type": "string"}, render=lambda arguments, value: value),
        execute=execute,
        cancel="scope" if name == "scope" else "cooperative",
        is_concurrency_safe=None if exclusive else (lambda arguments: True),
    )


async def _stay(mischief: Mischief) -> None:
    if not mischief.likely(0.5):
        return
    with anyio.CancelScope(shield=True):
        await mischief.released.wait()


async def _raise(mischief: Mischief) -> None:
    await mischief.pause(3)
    raise SimulatedFailure("the tool broke")


async def _note(run: ToolRunContext, deed: Callable[[], None]) -> None:
    await anyio.lowlevel.checkpoint()
    deed()


async def _meddle(mischief: Mischief) -> None:
    await mischief.pause(3)
    if not mischief.calm:
        mischief.deed("tool")
    await mischief.pause(3)


async def _wait_for_itself(run: ToolRunContext, mischief: Mischief) -> None:
    agent, handle = run.agent, mischief.handle
    if agent is None or handle is None or handle.agent is not agent:
        return
    try:
        await agent.when_idle()
    except AgentSelfWaitError:
        if mischief.likely(0.2):
            mischief.note("dispose, awaited, in tool")
            mischief.disposing = True
            await handle.dispose()


# ---- the listeners -------------------------------------------------------------------------


def add_prompt(ctx: Context, mischief: Mischief) -> None:
    """A prompt and a runtime context that change by chance."""

    def changing(word: str) -> Callable[[object], str | None]:
        return lambda assembly: mischief.facts(word)

    ctx.system_prompt.section("sim", 1, changing("prompt"))
    ctx.system_prompt.context("sim", 1, changing("context"))


def add_listeners(ctx: Context, mischief: Mischief) -> None:
    """Listen to everything, awkwardly."""
    stir = mischief.stir
    ctx.on(AgentAssistantStream, lambda event: stir("frame"), everywhere=True)
    ctx.on(InboxInserted, lambda event: stir("inserted"), everywhere=True)
    ctx.on(InboxClaimed, lambda event: stir("claimed"), everywhere=True)
    ctx.on(AgentError, lambda event: stir("error"), everywhere=True)
    ctx.on(SessionEventAppended, lambda event: stir("append"), everywhere=True)
    ctx.on(ToolsResult, lambda event: stir("result"), everywhere=True)

    async def status(event: AgentStatusChanged) -> None:
        if mischief.likely(0.1):
            await anyio.sleep_forever()
        if mischief.likely(0.1):
            await event.agent.when_idle()
        await mischief.trouble(f"status {event.status}")

    async def stopping(event: TurnStopping) -> None:
        await mischief.trouble("turn-stopping")

    ctx.on(AgentStatusChanged, status, everywhere=True)
    ctx.on(TurnStopping, stopping, everywhere=True)
    _listen_to_requests(ctx, mischief)
    _listen_to_tools(ctx, mischief)


def _listen_to_requests(ctx: Context, mischief: Mischief) -> None:
    async def assemble(event: SystemPromptAssemble, next_: Next[PromptAssembly]) -> PromptAssembly:
        await mischief.trouble("assemble")
        return await next_()

    async def pre_step(event: PreStep, next_: Next[PreStepDecision]) -> PreStepDecision:
        await mischief.trouble("pre-step")
        if mischief.likely(0.05):
            return mischief.dice.choice((Reject(), Enter(())))
        if mischief.likely(0.1):
            _compact(event.agent, mischief)
        decision = await next_()
        await mischief.trouble("behind pre-step")
        return decision

    async def request(event: AgentRequest, next_: Next[LlmCallConfig]) -> LlmCallConfig:
        await mischief.trouble("request")
        return await next_()

    async def failed(event: AgentRequestError, next_: Next[Retry | None]) -> Retry | None:
        await mischief.trouble("request-error")
        return Retry() if mischief.likely(0.6) else await next_()

    def stream(
        event: LlmStreamEvent, next_: Callable[[], AsyncIterator[StreamChunk]]
    ) -> AsyncIterator[StreamChunk]:
        mischief.stir("llm/stream")
        return next_()

    ctx.on(SystemPromptAssemble, assemble, everywhere=True)
    ctx.on(PreStep, pre_step, everywhere=True)
    ctx.on(AgentRequest, request, everywhere=True)
    ctx.on(AgentRequestError, failed, everywhere=True)
    ctx.on(LlmStreamEvent, stream, everywhere=True)


def _compact(agent: Agent, mischief: Mischief) -> None:
    """Put a summary in the place of a range of the history."""
    session = agent.session
    nodes = session.surface.nodes
    if len(nodes) < 2:
        return
    first = mischief.dice.randrange(1, len(nodes))
    last = mischief.dice.randrange(first, len(nodes))
    mischief.note(f"compact {nodes[first]}..{nodes[last]}")
    summary = UserMessageEvent(message=create_user_message(mischief.text("summary")))
    session.append(
        summary,
        surface_op=ReplaceOp(start_seq=nodes[first], end_seq=nodes[last]),
        source_event_seqs=nodes[first : last + 1],
    )


def _listen_to_tools(ctx: Context, mischief: Mischief) -> None:
    async def pre(event: ToolsPreExecute, next_: Next[PreToolDecision]) -> PreToolDecision:
        await mischief.trouble("pre-execute")
        return Deny("no") if mischief.likely(0.05) else await next_()

    async def execute(event: ToolsExecute, next_: Next[ToolExecutionResult]) -> ToolExecutionResult:
        await mischief.trouble("execute")
        return await next_()

    async def post(event: ToolsPostExecute, next_: Next[PostToolDecision]) -> PostToolDecision:
        await mischief.trouble("post-execute")
        return Block("blocked") if mischief.likely(0.05) else await next_()

    ctx.on(ToolsPreExecute, pre, everywhere=True)
    ctx.on(ToolsExecute, execute, everywhere=True)
    ctx.on(ToolsPostExecute, post, everywhere=True)
