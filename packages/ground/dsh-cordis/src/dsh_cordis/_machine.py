"""The state machine of a fiber. Upstream: packages/core/src/fiber.ts of Cordis.

Every step is taken by the kernel's pump; what has to wait is a callback that queues the fiber
again. Only an asynchronous body, and disposers that must be awaited, get a task.
"""

from collections.abc import AsyncGenerator, Coroutine
from contextvars import copy_context
from functools import partial
from inspect import isasyncgen, iscoroutine
from types import TracebackType

import anyio
from typing_extensions import override

from dsh_cordis._activation import Activation, Claim, FiberState, Node, Place
from dsh_cordis._effects import close_unstarted, gather, gather_async
from dsh_cordis._host import Gate
from dsh_cordis._plugin import Definition
from dsh_cordis._tree import Tree
from dsh_cordis.errors import InactiveError
from dsh_cordis.handle import Handle, Pause, Rest

_MOVING = (FiberState.LOADING, FiberState.UNLOADING)
_Work = Coroutine[object, object, object] | AsyncGenerator[object]


class FiberMachine(Node):
    """What moves one mounted plugin from state to state."""

    simple = True

    # Class attributes are the defaults of what many fibers never need.
    error: Exception | None = None
    queued = False
    _dying = False
    _again = False
    _recheck = False
    _updates = 0
    _failed_with: tuple[int, ...] = ()
    _traceback: TracebackType | None = None
    _pulse: "anyio.Event | None" = None

    def __init__(
        self,
        tree: Tree,
        definition: Definition,
        mount: Place | None,
        config: object,
    ) -> None:
        self.kernel = tree.kernel
        self.tree = tree
        self.definition = definition
        self.own_name = definition.name
        self.transparent = definition.transparent
        self.mount = mount
        self.parent = None if mount is None else mount.activation.fiber
        self.config = config
        self.uid = next(tree.kernel.uids)
        self.state = FiberState.PENDING
        self.required = dict(definition.required)
        self._variables = copy_context()
        self.activation = self._fresh()
        self._owner = self.activation if mount is None else mount.activation

    # What others read

    @property
    @override
    def name(self) -> str:
        node: Node | None = self
        while node is not None:
            if node.own_name is not None:
                return node.own_name
            node = node.parent
        return "root"

    @property
    @override
    def label(self) -> str:
        return f"plugin {self.name!r}"

    @override
    def children(self) -> list[Handle]:
        return list(self.activation.stack.items)

    def react(self) -> None:
        """Take what can be taken at once: leave LOADING or ACTIVE, and have the pump go on."""
        if self._is_doomed and self.state in (FiberState.LOADING, FiberState.ACTIVE):
            self._start_unloading()
        self.kernel.touch(self)

    @override
    def lose(self) -> None:
        # An activation that is unwinding already keeps its reason; a failed one stays failed.
        if not self.activation.closed:
            self._again = True
            self.kernel.touch(self)

    @override
    def recheck(self) -> None:
        self._recheck = True
        self.kernel.touch(self)

    @override
    def report(self, error: Exception, label: str) -> None:
        self.tree.report(error, self, label)

    @override
    def fail_in(self, activation: Activation, error: Exception) -> None:
        self.report(error, "background task")
        if activation is self.activation and not activation.closed and activation.error is None:
            activation.error = error
            self.react()

    @override
    def _begin(self) -> Rest:
        self._dying = True
        self.kernel.touch(self)
        return "pending"

    # The machine

    @override
    def advance(self) -> None:
        while self._step():
            pass
        if self._pulse is not None:
            pulse, self._pulse = self._pulse, None
            pulse.set()

    def _step(self) -> bool:
        """Take one step; True when there may be another."""
        # A chain and no table: hashing an enum member takes a call.
        state = self.state
        if state is FiberState.LOADING:
            return self._step_loading()
        if state is FiberState.UNLOADING:
            return self._step_unloading()
        if state is FiberState.ACTIVE:
            return self._step_active()
        if state is FiberState.PENDING:
            return self._step_pending()
        return state is FiberState.FAILED and self._step_failed()

    def _step_active(self) -> bool:
        if self._recheck:
            self._look_again()
        if self._is_doomed:
            self._start_unloading()
            return True
        return False

    @property
    def _is_doomed(self) -> bool:
        return self._dying or self._again or self.activation.error is not None

    def _look_again(self) -> None:
        self._recheck = False
        activation = self.activation
        if any(not c.is_available(activation.place) for c in activation.captured.values()):
            self._again = True

    def _step_pending(self) -> bool:
        if self._dying:
            self._start_unloading()
            return True
        self._again = self._recheck = False
        if self.parent is None or not self._may_load() or not self._capture():
            return False
        self._set_state(FiberState.LOADING)
        if self.activation.stack.items:
            for child in self.fibers_below():
                self.kernel.touch(child)
        return True

    def _may_load(self) -> bool:
        parent = self.parent
        return parent is not None and parent.state in (FiberState.LOADING, FiberState.ACTIVE)

    def claim_for(self, key: str) -> Claim | None:
        """What a required key resolves to now."""
        place = self.activation.place
        claim = self.tree.claims.get(place.pair(key))
        return claim if claim is not None and claim.visible_to(place) else None

    def _resolve(self) -> list[Claim] | None:
        """The claims of all required keys, or None while one is missing."""
        found: list[Claim] = []
        for key in self.required:
            claim = self.claim_for(key)
            if claim is None:
                return None
            found.append(claim)
        return found

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
        if self._recheck:
            self._look_again()
        if activation.phase == "new" and not self._is_doomed:
            self._run_body(activation)
            if self.state is not FiberState.LOADING:
                return True  # the body had its own fiber unloaded
        if self._is_doomed:
            self._start_unloading()
            return True
        if activation.phase == "running":
            return False
        self._set_state(FiberState.ACTIVE)
        for claim in activation.claims.values():
            claim.public = True
        for pair in activation.claims:
            self.tree.claims.changed(pair)
        return self._is_doomed

    def _run_body(self, activation: Activation) -> None:
        activation.phase = "running"
        work: _Work | None = None
        try:
            work = activation.context.run(self._call_body, activation)
        except Exception as error:  # noqa: BLE001  # a failing body fails its fiber only
            self._body_failed(activation, error)
        except (KeyboardInterrupt, SystemExit) as error:
            self.kernel.crash(error)
        if work is None:
            activation.phase = "done"
            return
        activation.gate = Gate()
        self.kernel.start(partial(self._body_task, activation, work), activation.context)
        if self.state is FiberState.UNLOADING:
            activation.gate.cancel()

    def _call_body(self, activation: Activation) -> _Work | None:
        config = self.definition.resolve_config(self.tree.interpolate(self, self.config))
        result = self.definition.run(activation.ctx, config)
        if result is None:
            return None
        if iscoroutine(result) or isasyncgen(result):
            return result  # type: ignore[return-value]  # the checks know no yield type
        gather(activation.stack, activation, result, f"body of {self.name!r}")
        return None

    def _body_failed(self, activation: Activation, error: Exception) -> None:
        known = False
        activation.traceback = error.__traceback__
        for seen, traceback in activation.frame.inherited:
            if seen is error:
                known, activation.traceback = True, traceback
        # A body that goes on after its own end was wished runs into refusals; that is no failure.
        refused = activation.closed and isinstance(error, InactiveError)
        if not known and not refused:
            self.report(error, "plugin body")
        activation.error = None if refused else error

    async def _body_task(self, activation: Activation, work: _Work) -> None:
        gate = activation.gate
        assert gate is not None
        try:
            with gate:
                await self._await_body(activation, work, gate)
                if not all(handle.simple for handle in activation.stack.items):
                    activation.unwind_go = anyio.Event()
                    self.kernel.touch(self)
                    await activation.unwind_go.wait()
                    await activation.stack.unwind_all()
                    activation.unwound = True
        except Exception as error:  # noqa: BLE001  # scopes the body left open may fail at the end
            self.report(error, "body task")
        finally:
            activation.unwind_go = None
            activation.unwinding = False
            activation.phase = "done"
            self.kernel.touch_now(self)

    async def _await_body(self, activation: Activation, work: _Work, gate: Gate) -> None:
        label = f"body of {self.name!r}"
        try:
            if gate.cancelled:
                close_unstarted(work)
            else:
                await gather_async(activation.stack, activation, work, label)
        except BaseException as raised:  # noqa: BLE001  # `contain` raises what is not ours
            error = gate.contain(raised)
            if error is not None:
                self._body_failed(activation, error)
        gate.shut()
        activation.phase = "done"

    def _start_unloading(self) -> None:
        activation = self.activation
        activation.closed = True
        if activation.phase == "new":
            activation.phase = "done"
        self._set_state(FiberState.UNLOADING)
        for claim in list(activation.claims.values()):
            claim.hide()
        if activation.gate is not None:
            activation.gate.cancel()

    def _step_unloading(self) -> bool:
        activation = self.activation
        if activation.phase != "done" or activation.unwinding:
            return False
        for claim in activation.claims.values():
            if claim.dependents:
                return False
        if not activation.unwound:
            if activation.unwind_go is not None:
                activation.unwinding = True
                activation.unwind_go.set()
                return False
            if not self._unwind(activation):
                return False
        self._end(activation)
        return self.state is not FiberState.DISPOSED

    def _unwind(self, activation: Activation) -> bool:
        """Unwind without a task as far as that goes; True when complete."""
        pause = activation.context.run(activation.stack.unwind)
        if pause is None:
            activation.unwound = True
            return True
        if pause.work is None:
            if activation.joined is not pause.handle:
                activation.joined = pause.handle
                pause.handle.when_used(partial(self.kernel.touch, self))
            return False
        activation.unwinding = True
        self.kernel.start(partial(self._unwind_task, activation, pause), activation.context)
        return False

    async def _unwind_task(self, activation: Activation, pause: Pause) -> None:
        try:
            await pause.wait()
            await activation.stack.unwind_all()
            activation.unwound = True
        finally:
            activation.unwinding = False
            self.kernel.touch_now(self)

    def _end(self, activation: Activation) -> None:
        """The activation is unwound: decide what comes next."""
        ids = [claim.id for claim in activation.captured.values()]
        activation.release()
        error = activation.error
        if error is not None:
            activation.error = None
        if self._dying:
            self._become_disposed()
        elif error is not None and not self._again:
            self.error, self._traceback = error, activation.traceback or error.__traceback__
            self._failed_with = tuple(ids)
            self._set_state(FiberState.FAILED)
        else:
            self._revive()

    def _revive(self) -> None:
        """Begin a fresh activation: LOADING at once where possible, else PENDING."""
        self._again = False
        self.error = self._traceback = None
        self.activation = self._fresh()
        if self._may_load() and self._capture():
            self._set_state(FiberState.LOADING)
        else:
            self._set_state(FiberState.PENDING)

    def _step_failed(self) -> bool:
        if self._dying:
            self._start_unloading()
            return True
        if not self._again and not self._claims_differ():
            return False
        self._revive()
        return True

    def _claims_differ(self) -> bool:
        if not self.required or not self._may_load():
            return False
        found = self._resolve()
        return found is not None and tuple(claim.id for claim in found) != self._failed_with

    def _become_disposed(self) -> None:
        for key in self.required:
            self.tree.claims.unwant(self.activation.place.pair(key), self)
        self.uid = None
        if self.error is not None:
            self.error = self._traceback = None
        self._set_state(FiberState.DISPOSED)
        self.tree.disposed(self)
        self._finish()

    def _fresh(self) -> Activation:
        activation = Activation(self, self.mount, self._variables.copy())
        activation.ctx = self.tree.make_context(activation.place)
        return activation

    @override
    def place_for(self, activation: Activation, mount: Place) -> Place:
        intercepts = mount.intercepts
        if self.required:
            intercepts += tuple((key, cfg) for key, cfg in self.required.items() if cfg is not None)
        return Place(activation, mount.realms, mount.scope, intercepts)

    def _set_state(self, state: FiberState) -> None:
        previous, self.state = self.state, state
        self.kernel.transitions += (state in _MOVING) - (previous in _MOVING)
        if "internal/status" in self.tree.rows:
            self.tree.status(self, previous)
