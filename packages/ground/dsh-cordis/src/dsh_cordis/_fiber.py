"""What others ask of a fiber, and how they wait for it."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
from typing_extensions import override

from dsh_cordis._activation import FiberState, Place, caller_behind, frame_var, lifecycle_frame
from dsh_cordis._machine import FiberMachine
from dsh_cordis.errors import DeadlockError, InactiveError
from dsh_cordis.handle import DONE, Completion, Going, HandleState

_SETTLED = (FiberState.PENDING, FiberState.ACTIVE, FiberState.FAILED, FiberState.DISPOSED)


class FiberCore(FiberMachine):
    """One mounted instance of a plugin; see `Fiber`."""

    @property
    def is_settled(self) -> bool:
        """Whether no transition is in flight and none was asked for."""
        if self.state is FiberState.DISPOSED:
            return True
        wish = self._dying or self._again or self._updates
        return self.state in _SETTLED and not wish and not self.queued

    def missing(self) -> list[str]:
        """The required keys that do not resolve now."""
        return [key for key in self.required if self.claim_for(key) is None]

    def require(self, key: str, config: object = None) -> None:
        """Add a requirement; for observers of `internal/plugin`, while the fiber is PENDING."""
        self.required[key] = config
        self.watch_keys()

    def watch_keys(self) -> None:
        """Have this fiber looked at when a required key changes."""
        for key in self.required:
            self.tree.claims.want(self.activation.place.pair(key), self)

    def begin(self) -> None:
        """Evaluate the requirements for the first time; the body runs later."""
        self.watch_keys()
        if self._step_pending():
            self.kernel.touch(self)

    def veto(self) -> None:
        """Take a mount back: no trace in registry and parent; what observers added is undone."""
        self._use = HandleState.UNDOING
        if self._home is not None:
            self._home.discard(self)
        self._wish_to_die()
        self.tree.leave(self)

    def dispose(self) -> Completion:
        """Dispose the fiber; awaiting returns when the whole subtree is unwound."""
        if self.state is FiberState.DISPOSED:
            return DONE
        self._use = HandleState.UNDOING
        self._dying = True
        self.react()
        return Going(self._wait_disposed)

    @override
    def __call__(self) -> Completion:
        return self.dispose()

    def move_to(self, mount: Place) -> None:
        """See `Fiber.move`."""
        mount.activation.check("moving a fiber")
        old, new = self.mount, mount.realms
        if self._dying or old is None:
            raise InactiveError(self.name, "moving it")
        realms = old.realms
        if not isinstance(realms, dict) or realms is old.activation.place.realms:
            raise TypeError(f"{self.name!r} shares its realms; mount it on ctx.extend() to move it")
        before = dict(realms)
        changed = {key for key in {*before, *new} if before.get(key) != new.get(key)}
        todo: list[FiberCore] = [self]
        concerned = []
        while todo:
            fiber = todo.pop()
            todo += [below for below in fiber.fibers_below() if isinstance(below, FiberCore)]
            concerned.append((fiber, fiber.activation.place, fiber.keys_at_stake(changed)))
        for fiber, place, keys in concerned:
            for key in keys:
                self.tree.claims.unwant(place.pair(key), fiber)
        # In place, since every context below that has no realms of its own reads this table.
        realms.clear()
        realms.update(new)
        mount.activation.stack.add(self)
        self.mount = self.activation.mount = Place(
            mount.activation, realms, mount.scope, mount.intercepts, mount.resolver, mount.service
        )
        self.parent = mount.activation.fiber
        self._owner = mount.activation
        for fiber, place, keys in concerned:
            fiber.watch_keys()
            if any(place.pair(key)[0] != before.get(key) for key in keys):
                fiber.lose()
            self.kernel.touch(fiber)

    def keys_at_stake(self, changed: set[str]) -> list[str]:
        """Which of the keys it requires or provides."""
        own = {*self.required, *(key for _, key in self.activation.claims)}
        return sorted(own & changed)

    def restart(self) -> Completion:
        """Unwind and load again, with the newest config; awaiting waits until settled.

        Raises:
            InactiveError: Disposal has been requested.
            TypeError: It is a root.
        """
        self._refuse_root()
        if self._dying:
            raise InactiveError(self.name, "restart")
        self._again = True
        self.react()
        return Going(self._wait_asked)

    def update(self, config: object) -> Completion:
        """Replace the config; see the contract of `internal/update`.

        Raises:
            InactiveError: Disposal has been requested.
            ConfigError: The fiber is ACTIVE and the config is invalid; nothing changed.
            TypeError: It is a root.
        """
        self._refuse_root()
        if self._dying:
            raise InactiveError(self.name, "update")
        if self.state is not FiberState.ACTIVE:
            self.config = config
            self._again = self.state is not FiberState.PENDING
            self.react()
            return Going(self._wait_asked)
        self._validate(config)
        chain = self.tree.take_over(self, config, partial(self._adopt, config))
        if chain is None:
            self.config = config
            return self.restart()
        return self._run_hooks(chain)

    async def active(self) -> None:
        """Wait until the fiber is ACTIVE; raise its error when it fails instead.

        Raises:
            InactiveError: It was disposed.
        """
        self._refuse_deadlock(going_down=False)
        self.kernel.drive()
        await anyio.lowlevel.checkpoint_if_cancelled()
        while not (self.state is FiberState.ACTIVE and self.is_settled):
            if self.state is FiberState.DISPOSED:
                raise InactiveError(self.name, "waiting for ACTIVE")
            if self.state is FiberState.FAILED and self.is_settled:
                self._raise_error()
            await self._wait_pulse()

    async def wait_settled(self) -> None:
        """Wait until no transition is in flight; raise the error of a FAILED fiber."""
        self._refuse_deadlock(going_down=False)
        self.kernel.drive()
        await anyio.lowlevel.checkpoint_if_cancelled()
        while not self.is_settled:
            await self._wait_pulse()
        if self.state is FiberState.FAILED:
            self._raise_error()

    async def _wait_asked(self) -> None:
        self._refuse_deadlock(going_down=True)
        self.kernel.drive()
        while not self.is_settled:
            await self._wait_pulse()
        if self.state is FiberState.FAILED:
            self._raise_error()
        if self.state is FiberState.DISPOSED:
            raise InactiveError(self.name, "restart or update")

    @override
    def would_hang(self) -> bool:
        return caller_behind(self, going_down=True) is not None

    async def _wait_disposed(self) -> None:
        if self.would_hang():
            return
        self.kernel.drive()
        while self.state is not FiberState.DISPOSED:
            await self._wait_pulse()

    async def _wait_pulse(self) -> None:
        if self._pulse is None:
            self._pulse = anyio.Event()
        frame = lifecycle_frame()
        if frame is None:
            await self._pulse.wait()
            return
        frame.awaiting = [*frame.awaiting, self]
        try:
            await self._pulse.wait()
        finally:
            left = list(frame.awaiting)
            left.remove(self)
            frame.awaiting = left

    def _refuse_root(self) -> None:
        if self.mount is None:
            raise TypeError("a root is neither restarted nor updated; open another Context()")

    def _refuse_deadlock(self, *, going_down: bool) -> None:
        caller = caller_behind(self, going_down=going_down)
        if caller is not None:
            raise DeadlockError(caller.name, self.name)

    def _raise_error(self) -> None:
        assert self.error is not None
        frame = frame_var.get()
        if frame is not None and not frame.is_task:
            frame.inherited = [*frame.inherited, (self.error, self._traceback)]
        # One error may pass a thousand awaiting parents; its traceback must not grow with each.
        raise self.error.with_traceback(self._traceback)

    def _validate(self, config: object) -> object:
        context = self.activation.context
        raw = context.copy().run(self.tree.interpolate, self, config)
        return self.definition.resolve_config(raw)

    async def _adopt(self, config: object) -> None:
        self.config = config
        if not self._dying:
            self._again = True
            self.react()

    def _run_hooks(self, chain: Callable[[], Awaitable[None]]) -> Completion:
        self._updates += 1
        self.kernel.transitions += 1
        ended, errors = anyio.Event(), list[Exception]()
        waiting = [0]

        async def run() -> None:
            self.activation.mark_task()
            try:
                await chain()
            except Exception as error:  # noqa: BLE001  # given to who waits for the update
                errors.append(error)
                if not waiting[0]:
                    self.report(error, "update hook")
            finally:
                self._updates -= 1
                self.kernel.transitions -= 1
                self.kernel.touch(self)
                ended.set()

        async def wait() -> None:
            waiting[0] += 1
            await ended.wait()
            if errors:
                raise errors[0]
            await self._wait_asked()

        self.kernel.start(run, self.activation.context)
        return Going(wait)

    def _wish_to_die(self) -> None:
        self._dying = True
        self.react()
