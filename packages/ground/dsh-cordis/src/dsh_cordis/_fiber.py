"""What others ask of a fiber, and how they wait for it."""

from collections.abc import Awaitable, Callable
from functools import partial

import anyio
from msgspec.structs import replace
from typing_extensions import override

from dsh_cordis._activation import Activation, Pair, Place, caller_behind, lifecycle_code
from dsh_cordis._effects import Background
from dsh_cordis._machine import ACTIVE, DISPOSED, FAILED, PENDING, FiberMachine
from dsh_cordis.errors import DeadlockError, InactiveError
from dsh_cordis.handle import DONE, Completion, lifecycle


class FiberCore(FiberMachine):
    """One mounted instance of a plugin; see `Fiber`."""

    @property
    def is_settled(self) -> bool:
        """Whether no transition is in flight and none was asked for."""
        rests = self.state is PENDING or self.state is ACTIVE or self.state is FAILED
        wish = self._begun or self._again or self.updates or self.queued
        return self.state is DISPOSED or (rests and not wish)

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
            self.kernel.claims.want(self.activation.place.pair(key), self)

    def begin(self) -> None:
        """Evaluate the requirements for the first time; the body runs later."""
        self.watch_keys()
        if not self._begun and self._step_pending():
            if self.definition.transparent:
                self.advance()
            else:
                self.kernel.touch(self)

    def veto(self) -> None:
        """Take a mount back: no trace in registry and parent; what observers added is undone."""
        if self._home is not None:
            self._home.items.pop(self, None)
        self.dispose()

    def dispose(self) -> Completion:
        """Dispose the fiber; awaiting returns when the whole subtree is unwound."""
        if self.state is DISPOSED:
            return DONE
        self._begun = True
        self.react()
        return Completion(self._wait_disposed)

    @override
    def __call__(self) -> Completion:
        return self.dispose()

    def move_to(self, mount: Place) -> None:
        """See `Fiber.move`."""
        mount.activation.check("moving a fiber")
        old, new = self.mount, mount.realms
        if self._begun or old is None:
            raise InactiveError(self.name, "moving it")
        realms = old.realms
        if not isinstance(realms, dict) or realms is old.activation.place.realms:
            raise TypeError(f"{self.name!r} shares its realms; mount it on ctx.extend() to move it")
        concerned = [fiber for fiber in self.subtree() if isinstance(fiber, FiberCore)]
        before = [fiber.pairs() for fiber in concerned]
        for fiber in concerned:
            fiber.unwatch_keys()
        # In place, since every context below that has no realms of its own reads this table.
        realms.clear()
        realms.update(new)
        mount.activation.stack.add(self)
        self.mount = self.activation.mount = replace(mount, realms=realms)
        self._owner = mount.activation
        for fiber, pairs in zip(concerned, before, strict=True):
            fiber.watch_keys()
            if fiber.pairs() != pairs:
                fiber.lose()
            self.kernel.touch(fiber)

    def pairs(self) -> set[Pair]:
        """What it requires and provides, where it stands now."""
        provided = {claim.place.pair(claim.key) for claim in self.activation.claims.values()}
        return provided.union(map(self.activation.place.pair, self.required))

    def restart(self) -> Completion:
        """Unwind and load again, with the newest config; awaiting waits until settled.

        Raises:
            InactiveError: Disposal has been requested.
            TypeError: It is a root.
        """
        self._refuse("restart")
        self._again = True
        self.react()
        return Completion(self._wait_asked)

    def update(self, config: object) -> Completion:
        """Replace the config; see the contract of `internal/update`.

        Raises:
            InactiveError: Disposal has been requested.
            ConfigError: The fiber is ACTIVE and the config is invalid; nothing changed.
            TypeError: It is a root.
        """
        self._refuse("update")
        if self.state is not ACTIVE:
            self.config = config
            self._again = self.state is not PENDING
            self.react()
            return Completion(self._wait_asked)
        self.activation.variables.copy().run(self._validate, config)
        chain = self.kernel.take_over(self, config, partial(self._adopt, config))
        if chain is not None:
            return self._run_hooks(chain)
        self.config = config
        return self.restart()

    def _refuse(self, what: str) -> None:
        if self.mount is None:
            raise TypeError("a root is neither restarted nor updated; open another Context()")
        if self._begun:
            raise InactiveError(self.name, what)

    def _validate(self, config: object) -> None:
        self.definition.resolve_config(self.kernel.interpolate(self, config))

    async def _adopt(self, config: object) -> None:
        self.config = config
        if not self._begun:
            self._again = True
            self.react()

    def _run_hooks(self, chain: Callable[[], Awaitable[None]]) -> Completion:
        self.updates += 1
        self.kernel.transitions += 1
        # They fail as an undo by hand does: to who waits, or they are reported.
        hooks = Background(work=chain, _owner=self.activation, label="update hook", _by_hand=True)
        hooks.when_used(self._hooks_ended)
        self.activation.stack.add(hooks)
        self.kernel.start(hooks.run, self.activation.variables)

        async def wait() -> None:
            await hooks.wait_by_hand()
            await self._wait_asked()

        return Completion(wait)

    def _hooks_ended(self) -> None:
        self.updates -= 1
        self.kernel.transitions -= 1
        self.kernel.touch(self)

    async def active(self) -> None:
        """Wait until the fiber is ACTIVE; raise its error when it fails instead.

        Raises:
            InactiveError: It was disposed.
        """
        await self.wait_settled()
        while self.state is not ACTIVE:
            if self.state is DISPOSED:
                raise InactiveError(self.name, "waiting for ACTIVE")
            await self._wait_pulse()
            await self.wait_settled()

    async def wait_settled(self) -> None:
        """Wait until no transition is in flight; raise the error of a FAILED fiber."""
        self._refuse_deadlock(going_down=False)
        self.kernel.drive()
        await anyio.lowlevel.checkpoint_if_cancelled()
        while not self.is_settled:
            await self._wait_pulse()
        if self.state is FAILED:
            self._raise_error()

    async def _wait_asked(self) -> None:
        self._refuse_deadlock(going_down=True)
        await self.wait_settled()
        if self.state is DISPOSED:
            raise InactiveError(self.name, "restart or update")

    async def _wait_disposed(self) -> None:
        if not self.would_hang():
            self.kernel.drive()
            while self.state is not DISPOSED:
                await self._wait_pulse()

    @override
    def would_hang(self) -> bool:
        return caller_behind(self, going_down=True) is not None

    async def _wait_pulse(self) -> None:
        if self.pulse is None:
            self.pulse = anyio.Event()
        pulse, caller = self.pulse, lifecycle_code()
        awaiting = [] if caller is None else caller.awaiting
        awaiting.append(self)
        try:
            await pulse.wait()
        finally:
            awaiting.remove(self)

    def _refuse_deadlock(self, *, going_down: bool) -> None:
        caller = caller_behind(self, going_down=going_down)
        if caller is not None:
            raise DeadlockError(caller.name, self.name)

    def _raise_error(self) -> None:
        assert self.error is not None
        caller = lifecycle.get()
        if isinstance(caller, Activation):
            caller.inherited.append((self.error, self.traceback))
        # One error may pass a thousand awaiting parents; its traceback must not grow with each.
        raise self.error.with_traceback(self.traceback)
