"""A seeded simulator: an agent under random trouble, and what must hold all the same.

One seed is one story: a model, tools, listeners and users act by chance at every await point, the
store fails, the log refuses events, the agent is disposed and resumed, the process dies and
another one goes on. Afterwards everything calms down and the promises of the loop are checked.
"""

import traceback
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import anyio
import anyio.lowlevel
import msgspec

from dsh_agent import Agent, AgentBaseError, AgentError, unwritten_input
from dsh_agent_loop.checkpoint import checkpoint
from dsh_agent_loop.grace import CensusEntry
from dsh_agent_loop.invariant import RequestInvariantError
from dsh_cordis import Context
from dsh_llm import Message, RuntimeContextSource, message_text
from dsh_llm.testing import request_problems
from dsh_session import (
    Completed,
    Session,
    SessionConfig,
    SessionEventData,
    SessionId,
    TurnEnd,
)

from .checks import EventJudge, log_problems, view_problems
from .mischief import (
    Mischief,
    MischievousModel,
    SimulatedFailure,
    add_listeners,
    add_prompt,
    add_tools,
)
from .stack import mount_loop
from .store import SimulatedStore

SESSION = SessionId("simulated")
_PATIENCE = 4000
_WAKING = 10
"""Checkpoints in which tasks that were woken together have all run."""


class SimulationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What happened under one seed."""

    seed: int
    events: int
    """Length of the log at the end."""
    turns: int
    requests: int
    lives: int
    """How often the agent was created or resumed."""
    crashes: int
    done: tuple[str, ...]
    """The trouble, in order."""


class SimulationFailedError(AssertionError):
    """A promise of the loop was broken under a seed."""

    def __init__(self, seed: int, problems: list[str], done: list[str], log: list[str]) -> None:
        self.seed = seed
        listed = "\n- ".join(problems)
        super().__init__(
            f"seed {seed}: {len(problems)} promises were broken:\n- {listed}\n"
            f"trouble: {'; '.join(done[-30:])}\n"
            f"log: {' | '.join(log[-40:])}\n"
            f"replay with: await simulate({seed})"
        )


async def simulate(
    seed: int, *, ticks: int = 200, rate: float = 0.02, crashes: bool = True
) -> SimulationReport:
    """Run the story of one seed.

    On asyncio the same seed is the same story; trio orders tasks by a chance of its own.

    Args:
        seed: Which story.
        ticks: For how many passes through the scheduler trouble goes on.
        rate: How likely it is at each place.
        crashes: The process may die.

    Raises:
        SimulationFailedError: A promise was broken.
    """
    return await _Simulation(seed, ticks, rate, crashes).run()


class _Simulation:
    """The state of one story."""

    def __init__(self, seed: int, ticks: int, rate: float, crashes: bool) -> None:
        self._seed = seed
        self._ticks = ticks
        self._crashes = crashes
        self._mischief = Mischief(seed, rate)
        self._model = MischievousModel(self._mischief)
        self._problems: list[str] = []
        self._lives = 0
        self._crash_count = 0
        self._ctx: Context
        self._judge: EventJudge
        # Each story has a temper of its own: where users are patient, whole turns happen.
        self._user_rate = self._mischief.dice.choice((0.01, 0.03, 0.1))
        self._refusals = self._mischief.dice.choice((0.0, 0.0, 0.02, 0.2))
        self._cap = self._mischief.dice.randrange(1, 5)

    # ---- the story -------------------------------------------------------------------------

    async def run(self) -> SimulationReport:
        """Live, crash, live on, calm down."""
        before = {task.id for task in anyio.get_running_tasks()}
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._pass_time)
            self._mischief.users = tasks
            try:
                while await self._process():
                    pass
            except Exception as error:  # noqa: BLE001  # whatever it is, it breaks the promise
                told = "".join(traceback.format_exception(error))
                self._complain([f"the story broke off: {told}"])
            tasks.cancel_scope.cancel()
        left = [task.name for task in anyio.get_running_tasks() if task.id not in before]
        self._complain([f"a task was left behind: {name}" for name in left])
        self._raise()
        return self._report

    async def _pass_time(self) -> None:
        while True:
            await anyio.lowlevel.checkpoint()
            self._mischief.clock.advance(0.1)

    async def _process(self) -> bool:
        """One process from start to end; true when it died and another one goes on."""
        mischief = self._mischief
        async with self._stack() as ctx:
            self._ctx, self._judge = ctx, EventJudge(ctx)
            add_tools(ctx, mischief)
            add_listeners(ctx, mischief)
            add_prompt(ctx, mischief)
            ctx.on(AgentError, self._watch_error, everywhere=True)
            await self._live()
            crashed = mischief.crashed
            mischief.crashed = False
            if crashed:
                mischief.disk = mischief.disk.after_crash(self._luck)
                mischief.note("crash")
                self._crash_count += 1
            # What goes on in here from now on concerns nobody any more.
            mischief.calm = True
            mischief.released.set()
            if not crashed:
                await self._settle()
                await self._close()
        if self._model.closed != len(self._model.requests):
            self._complain(
                [f"{len(self._model.requests)} streams began, {self._model.closed} were closed"]
            )
        mischief.released = anyio.Event()
        mischief.calm = mischief.disposing = False
        mischief.handle = None
        return crashed

    @asynccontextmanager
    async def _stack(self) -> AsyncGenerator[Context]:
        mischief = self._mischief
        async with Context() as root:
            root.provide("clock", mischief.clock)
            now_ms = SessionConfig(now_ms=lambda: int(mischief.clock.now_s() * 1000))
            _ = root.plugin(SimulatedStore, mischief.disk)
            grace = {"cancel_grace_ms": 2000, "abandon_grace_ms": 1000, "listener_grace_ms": 1500}
            mount_loop(
                root, config={**grace, "max_parallel_tool_calls": self._cap}, sessions=now_ms
            )
            _ = root.plugin(checkpoint)
            await root.settled()
            root.llm.register_adapter(["test"], self._model)
            yield root

    async def _live(self) -> None:
        mischief = self._mischief
        mischief.disk.pause = lambda: mischief.dice.randrange(3)
        for _ in range(self._ticks):
            if mischief.agent is not None and mischief.agent.status == "idle":
                # Work, so that there is something to disturb.
                self._work()
            if mischief.agent is None or (mischief.disposing and mischief.likely(0.2)):
                await self._begin()
            await anyio.lowlevel.checkpoint()
            self._ticks -= 1
            if self._crashes and mischief.likely(0.002):
                mischief.crashed = True
                return
            if mischief.likely(self._user_rate):
                self._act()

    def _work(self) -> None:
        agent = self._mischief.agent
        if agent is not None and self._mischief.likely(0.3):
            with suppress(AgentBaseError, SimulatedFailure):
                agent.followup(self._mischief.text("M"))

    def _act(self) -> None:
        """A user does something."""
        try:
            self._mischief.deed("user")
        except Exception as error:  # noqa: BLE001  # users are told; the story goes on
            self._mischief.note(f"-> {type(error).__name__}")

    async def _begin(self) -> None:
        """Create or resume the agent; a creation that fails is tried again."""
        mischief, agents = self._mischief, self._ctx.agents
        mischief.kept_wakes.clear()
        gone, mischief.handle, mischief.disposing = mischief.handle, None, False
        if gone is not None:
            with suppress(Exception):
                await gone.dispose()
        stored = mischief.disk.sessions.get(SESSION)
        cut = unwritten_input(stored.events if stored is not None else ())
        try:
            if stored is not None and stored.events:
                handle = await agents.resume(SESSION, provider="test", model="m")
            else:
                mischief.disk.sessions.pop(SESSION, None)
                handle = await agents.create(session_id=SESSION, provider="test", model="m")
        except Exception as error:  # noqa: BLE001  # of a listener or of the store
            mischief.note(f"creation failed: {error}")
            return
        self._lives += 1
        mischief.handle = handle
        lost = mischief.disk.failed or self._crash_count
        returned = {m.id for m in (*cut.next_turn, *cut.next_step)}
        if not lost and self._pending(handle.agent) != self._judge.waiting() | returned:
            self._complain(["the inbox of the resumed agent differs from what was told before"])
        self._judge.expect(handle.agent)
        vars(handle.agent.session)["append"] = self._refuser(handle.agent.session)

    def _refuser(self, session: Session) -> object:
        append = session.append

        def refuse(payload: SessionEventData, **more: object) -> object:
            if self._mischief.likely(self._refusals):
                self._mischief.note(f"refused {payload.type}")
                raise SimulatedFailure(f"the log refused {payload.type}")
            return append(payload, **more)  # type: ignore[arg-type]  # passed on as it came

        return refuse

    def _pending(self, agent: Agent) -> set[str]:
        return {m.id for m in (*agent.inbox.next_turn, *agent.inbox.next_step)}

    def _luck(self, buffered: int) -> int:
        return self._mischief.dice.randrange(buffered + 1)

    # ---- the end ---------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Everything calms down: the agent comes to rest and then does its work."""
        self._mischief.disk.failing = 0
        while self._mischief.agent is None or self._mischief.disposing:
            await self._begin()
            await anyio.lowlevel.checkpoint()
        agent = self._mischief.agent
        if not await self._at_rest(300):
            agent.cancel(keep_inbox=True)
        if not await self._at_rest(_PATIENCE):
            alive = self._ctx.agent_loop.census(agent)
            self._complain([f"the agent does not come to rest; alive: {alive}"])
            return
        await self._check_quiet()
        self._check_wakes(agent)
        agent.followup("the last word")
        if not await self._at_rest(_PATIENCE):
            self._complain(["the agent does not come to rest after the last word"])
        self._check_end()
        self._complain(
            [f"still alive at the end: {entry}" for entry in self._ctx.agent_loop.census(agent)]
        )

    async def _at_rest(self, ticks: int) -> bool:
        agent = self._mischief.agent
        idle = anyio.Event()

        async def wait() -> None:
            if agent is not None:
                await agent.when_idle()
            idle.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            for _ in range(ticks):
                await anyio.lowlevel.checkpoint()
                if idle.is_set():
                    break
            tasks.cancel_scope.cancel()
        return idle.is_set()

    def _alive(self, agent: Agent) -> list[CensusEntry]:
        return [entry for entry in self._ctx.agent_loop.census(agent) if not entry.abandoned]

    async def _check_quiet(self) -> None:
        """Idle means that nothing runs and nothing happens."""
        agent = self._mischief.agent
        if agent is None:
            return
        alive = self._alive(agent)
        for _ in range(_WAKING):
            # Listeners that wait for quiet themselves end with it; trio may wake them behind us.
            if not alive:
                break
            await anyio.lowlevel.checkpoint()
            alive = self._alive(agent)
        self._complain([f"the idle agent has something alive: {entry}" for entry in alive])
        if agent.status != "idle":
            self._complain([f"the agent at rest is {agent.status}"])
        heard, length = self._judge.count, agent.session.seq
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        if (self._judge.count, agent.session.seq) != (heard, length):
            self._complain(["something happened to an idle agent"])

    def _check_wakes(self, agent: Agent) -> None:
        """No wake falls between an activity's last look and idle."""
        if self._refusals:
            return
        begun = [event.seq for event in agent.session.events if event.type == "turn/start"]
        waiting = self._pending(agent)
        for message_id, seq in self._mischief.kept_wakes.items():
            if message_id in waiting and not (begun and begun[-1] >= seq):
                self._complain([f"the wake of message {message_id} was lost"])

    def _check_request(self) -> None:
        """The model is told the prompt and the runtime context of the moment, and no others."""
        if not self._model.requests:
            self._complain(["no request was made"])
            return
        sent = self._model.requests[-1].messages
        prompts = [message_text(m) for m in sent if m.role == "system"]
        contexts = [
            message_text(m)
            for m in sent
            if isinstance(m, Message) and isinstance(m.source, RuntimeContextSource)
        ]
        prompt = self._mischief.facts("prompt")
        if prompts != ([] if prompt is None else [prompt]):
            self._complain([f"the last prompt is {prompts}, not {prompt!r}"])
        context = self._mischief.facts("context")
        if context is not None and not (contexts and context in contexts[-1]):
            self._complain([f"the last context is {contexts[-1:]}, not {context!r}"])

    def _check_end(self) -> None:
        agent = self._mischief.agent
        if agent is None:
            return
        session = agent.session
        self._complain(log_problems(list(session.events)))
        self._complain(view_problems(self._ctx, session))
        last = session.events[-1].data
        if not isinstance(last, TurnEnd) or not isinstance(last.reason, Completed):
            self._complain([f"the last turn did not complete: {last!r:.200}"])
        pending = self._pending(agent)
        if pending != self._judge.waiting():
            self._complain(["the inbox differs from what was told of it"])
        if pending:
            self._complain(["input stays pending behind a turn that completed"])
        self._complain(self._judge.unsettled())
        self._check_request()
        for request in self._model.requests:
            self._complain(request_problems(request.messages))

    async def _close(self) -> None:
        """Dispose the agent; what is stored then is the whole log."""
        handle = self._mischief.handle
        if handle is None:
            return
        session = handle.agent.session
        log = list(session.events)
        with anyio.move_on_after(5) as limit:
            await handle.dispose()
        if limit.cancelled_caught:
            self._complain(["the disposal does not end"])
        stored = self._mischief.disk.sessions[SESSION].events
        if stored != log:
            self._complain([f"{len(stored)} events are stored of {len(log)}"])
        self._complain(self._judge.problems)
        turns = sum(1 for event in log if event.type == "turn/start")
        self._report = SimulationReport(
            seed=self._seed,
            events=len(log),
            turns=turns,
            requests=len(self._model.requests),
            lives=self._lives,
            crashes=self._crash_count,
            done=tuple(self._mischief.done),
        )

    def _watch_error(self, event: AgentError) -> None:
        if isinstance(event.error, RequestInvariantError):
            self._complain([f"{event.error.message}"])
        elif not _on_purpose(event.error):
            told = "".join(traceback.format_exception(event.error))
            self._complain([f"an error that nobody made on purpose: {told}"])

    def _complain(self, problems: list[str]) -> None:
        self._problems.extend(problems)

    def _raise(self) -> None:
        if self._problems:
            raise SimulationFailedError(
                self._seed, self._problems, self._mischief.done, self._log_lines
            )

    @property
    def _log_lines(self) -> list[str]:
        from .recording import line_of

        stored = self._mischief.disk.sessions.get(SESSION)
        return [] if stored is None else [line_of(event) for event in stored.events]


def _on_purpose(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_on_purpose(member) for member in error.exceptions)
    if isinstance(error, SimulatedFailure | OSError):
        return True
    return getattr(error, "code", "") in ("SERVER", "UNKNOWN", "SESSION_REENTRY")
