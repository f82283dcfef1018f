"""The state machine of a fiber. Upstream: packages/core/src/fiber.ts of Cordis.

Every step is taken by the kernel's pump; what has to wait is a callback that queues the fiber
again. Only an asynchronous body, and disposers that must be awaited, get a task.
"""

from contextvars import Context, copy_context
from functools import partial
from types import TracebackType

import anyio
import msgspec
from typing_extensions import override

from dsh_cordis._activation import Activation, Claim, FiberState, Node
from dsh_cordis._effects import Late, close_unstarted, gather, gather_async, is_late
from dsh_cordis._gate import Gate
from dsh_cordis._tree import Tree
from dsh_cordis.errors import InactiveError

PENDING, LOADING, ACTIVE, UNLOADING, FAILED, DISPOSED = FiberState


class FiberMachine(Node, kw_only=True):
    """What moves one mounted plugin from state to state."""

    kernel: Tree
    config: object
    variables: Context = msgspec.field(default_factory=copy_context)
    """Those of the mount; each activation gets a copy."""

    updates: int = 0
    """Chains of `internal/update` that run."""

    traceback: TracebackType | None = None
    failed_with: tuple[int, ...] = ()
    """The numbers of the claims, which themselves would be kept alive."""

    pulse: "anyio.Event | None" = None
    """Set, and dropped, after each look at the fiber."""

    def __post_init__(self) -> None:
        """Have an activation, on which observers may register before it ever loads."""
        self.uid = next(self.kernel.uids)
        self.required = dict(self.definition.required)
        self.activation = self._fresh()
        self.label = f"plugin {self.name!r}"

    def react(self) -> None:
        """Take what can be taken at once: leave LOADING or ACTIVE, and have the pump go on."""
        if self._is_doomed and (self.state is LOADING or self.state is ACTIVE):
            self._start_unloading()
        self.kernel.touch(self)

    @override
    def _undo(self) -> bool:
        self.kernel.touch(self)
        return False

    # The machine

    @override
    def advance(self) -> None:
        while self._step():
            pass
        if self.pulse is not None:
            pulse, self.pulse = self.pulse, None
            pulse.set()

    def _step(self) -> bool:
        """Take one step; True when there may be another."""
        # A chain and no table: hashing an enum member takes a call.
        state = self.state
        if state is UNLOADING:
            return self._step_unloading()
        if state is LOADING or state is ACTIVE:
            if self._is_doomed:
                self._start_unloading()
                return True
            return state is LOADING and self._step_loading()
        if self._begun and state is not DISPOSED:
            self._start_unloading()
            return True
        return self._step_pending() if state is PENDING else self._step_failed()

    @property
    def _is_doomed(self) -> bool:
        return self._begun or self._again or self.activation.error is not None

    def _step_pending(self) -> bool:
        self._again = False
        if not self._may_load() or not self._capture():
            return False
        self._set_state(LOADING)
        if self.activation.stack.items:
            for child in self.fibers_below():
                self.kernel.touch(child)
        return True

    def _may_load(self) -> bool:
        if self.mount is None:
            return False
        state = self.mount.activation.fiber.state
        return state is ACTIVE or state is LOADING

    def unwatch_keys(self) -> None:
        """Leave this fiber alone when a required key changes."""
        for key in self.required:
            self.kernel.claims.unwant(self.activation.place.pair(key), self)

    def claim_for(self, key: str) -> Claim | None:
        """What a required key resolves to now."""
        place = self.activation.place
        claim = self.kernel.claims.live.get(place.pair(key))
        return claim if claim is not None and claim.visible_to(place) else None

    def _resolve(self) -> list[Claim] | None:
        """The claims of all required keys, or None while one is missing."""
        claims = [self.claim_for(key) for key in self.required]
        found = [claim for claim in claims if claim is not None]
        return found if len(found) == len(claims) else None

    def _capture(self) -> bool:
        if not self.required:
            return True
        activation, found = self.activation, self._resolve()
        for claim in found or ():
            activation.captured[claim.pair] = claim
            claim.dependents[activation] = None
        return found is not None

    def _step_loading(self) -> bool:
        activation = self.activation
        if activation.phase == "new":
            self._run_body(activation)
            return True
        if activation.phase == "running":
            return False
        self._set_state(ACTIVE)
        for claim in activation.claims.values():
            claim.public = True
        for pair in activation.claims:
            self.kernel.claims.changed(pair)
        return self._is_doomed

    def _run_body(self, activation: Activation) -> None:
        activation.phase = "running"
        work: Late | None = None
        try:
            work = activation.variables.run(self._call_body, activation)
        except Exception as error:  # noqa: BLE001  # a failing body fails its fiber only
            self._body_failed(activation, error)
        except (KeyboardInterrupt, SystemExit) as error:
            self.kernel.crash(error)
        if work is None:
            activation.phase = "done"
            return
        activation.gate = Gate()
        self.kernel.start(partial(self._body_task, activation, work), activation.variables)
        if self.state is UNLOADING:
            activation.gate.cancel()

    def _call_body(self, activation: Activation) -> Late | None:
        definition = self.definition
        config = definition.resolve_config(self.kernel.interpolate(self, self.config))
        result = definition.run(activation.ctx, config)
        if result is None:
            return None
        if is_late(result):
            return result
        gather(activation.stack, result, f"body of {self.name!r}")
        return None

    def _body_failed(self, activation: Activation, error: Exception) -> None:
        known = False
        activation.traceback = error.__traceback__
        for seen, traceback in activation.inherited:
            if seen is error:
                known, activation.traceback = True, traceback
        # A body that goes on after its own end was wished runs into refusals; that is no failure.
        refused = activation.closed and isinstance(error, InactiveError)
        if not known and not refused:
            activation.report(error, "plugin body")
        activation.error = None if refused else error

    async def _body_task(self, activation: Activation, work: Late) -> None:
        gate = activation.gate
        assert gate is not None
        label = f"body of {self.name!r}"
        try:
            with gate:
                take = partial(gather_async, activation.stack, work, label)
                error = await gate.run(take)
                close_unstarted(work)
                if error is not None:
                    self._body_failed(activation, error)
                activation.phase = "done"
                if not all(handle.simple for handle in activation.stack.items):
                    activation.unwind_go = anyio.Event()
                    self.kernel.touch(self)
                    await activation.unwind_go.wait()
                    await activation.stack.unwind_all()
        except Exception as error:  # noqa: BLE001  # scopes the body left open may fail at the end
            activation.report(error, "body task")
        finally:
            activation.unwind_go = None
            activation.busy = False
            activation.phase = "done"
            self.kernel.drive(self)

    def _start_unloading(self) -> None:
        activation = self.activation
        activation.closed = True
        if activation.phase == "new":
            activation.phase = "done"
        self._set_state(UNLOADING)
        for claim in list(activation.claims.values()):
            claim.hide()
        if activation.gate is not None:
            activation.gate.cancel()

    def _step_unloading(self) -> bool:
        activation = self.activation
        if activation.phase != "done" or activation.busy:
            return False
        for claim in activation.claims.values():
            if claim.dependents:
                return False
        if activation.unwind_go is not None:
            activation.busy = True
            activation.unwind_go.set()
            return False
        if activation.stack.items and not self._unwind(activation):
            return False
        self._end(activation)
        return self.state is not DISPOSED

    def _unwind(self, activation: Activation) -> bool:
        """Unwind without a task as far as that goes; True when complete."""
        top = activation.variables.run(activation.stack.unwind)
        if top is None:
            return True
        if top._rest is None:
            top.when_used(partial(self.kernel.touch, self))
        else:
            activation.busy = True
            self.kernel.start(partial(self._unwind_task, activation), activation.variables)
        return False

    async def _unwind_task(self, activation: Activation) -> None:
        try:
            await activation.stack.unwind_all()
        finally:
            activation.busy = False
            self.kernel.drive(self)

    def _end(self, activation: Activation) -> None:
        """The activation is unwound: decide what comes next."""
        captured = activation.captured
        activation.release()
        error, activation.error = activation.error, None
        if self._begun:
            self._become_disposed()
        elif error is not None and not self._again:
            self.error, self.traceback = error, activation.traceback or error.__traceback__
            self.failed_with = tuple(claim.id for claim in captured.values())
            self.kernel.failed[self] = None
            self._set_state(FAILED)
        else:
            self._revive()

    def _revive(self) -> None:
        """Begin a fresh activation: LOADING at once where possible, else PENDING."""
        self._again = False
        self.error = self.traceback = None
        self.kernel.failed.pop(self, None)
        self.activation = self._fresh()
        self._set_state(LOADING if self._may_load() and self._capture() else PENDING)

    def _step_failed(self) -> bool:
        if self.state is not FAILED or not (self._again or self._claims_differ()):
            return False
        self._revive()
        return True

    def _claims_differ(self) -> bool:
        found = self._resolve() if self.required and self._may_load() else None
        return found is not None and tuple(claim.id for claim in found) != self.failed_with

    def _become_disposed(self) -> None:
        self.unwatch_keys()
        self.uid = None
        self.error = self.traceback = None
        self.kernel.failed.pop(self, None)
        self._set_state(DISPOSED)
        self.kernel.tell("internal/plugin", self)
        self._finish()

    def _fresh(self) -> Activation:
        activation = Activation(self, self.kernel, self.mount, self.variables.copy())
        activation.ctx = self.kernel.make_context(activation.place)
        if self.definition.transparent:
            activation.phase = "done"  # a scope has no body
        return activation

    def _set_state(self, state: FiberState) -> None:
        previous, self.state = self.state, state
        moving = state is LOADING or state is UNLOADING
        self.kernel.transitions += moving - (previous is LOADING or previous is UNLOADING)
        if "internal/status" in self.kernel.rows:
            self.kernel.tell("internal/status", self, previous)
