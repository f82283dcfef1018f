"""The observation policy: nobody overwrites what he has not seen. Mountable on its own."""

from weakref import WeakKeyDictionary

from dsh_cordis import Context, Next

from .errors import FsError
from .events import FsEditIntent, FsObserved, FsWriteIntent
from .types import CreateIfAbsent, EditExpectation, FsVersion, ReplaceIfVersion, WriteExpectation

_Seen = dict[str, FsVersion | None]


def observation_policy(ctx: Context) -> None:
    """Remember what each agent has read, and demand it before it writes or edits.

    The memory is per session, ends with the session or the plugin, and is not stored.
    """
    policy = ObservationPolicy()
    ctx.on(FsObserved, policy.observed)
    ctx.on(FsWriteIntent, policy.write)
    ctx.on(FsEditIntent, policy.edit)


apply = observation_policy


class ObservationPolicy:
    """What each actor has seen."""

    def __init__(self) -> None:
        self._memory: WeakKeyDictionary[object, _Seen] = WeakKeyDictionary()

    def observed(self, event: FsObserved) -> None:
        """Remember a version, or an absence."""
        if event.actor is not None:
            seen = self._memory.setdefault(event.actor, {})
            seen[event.target.target_key] = event.version

    async def write(
        self,
        event: FsWriteIntent,
        next_: Next[WriteExpectation | None],
    ) -> WriteExpectation | None:
        """New files may be created; known ones replaced while they are as known."""
        version = self._seen(event.actor).get(event.target.target_key)
        return CreateIfAbsent() if version is None else ReplaceIfVersion(version)

    async def edit(
        self,
        event: FsEditIntent,
        next_: Next[EditExpectation | None],
    ) -> EditExpectation | None:
        """Known files may be edited while they are as known.

        Raises:
            FsError: The file is unknown, or known to be absent.
        """
        display = event.target.display_path
        seen = self._seen(event.actor)
        if event.target.target_key not in seen:
            raise FsError(
                f"{display} was not read before; read it, then retry", "FS_NOT_OBSERVED", display
            )
        version = seen[event.target.target_key]
        if version is None:
            raise FsError(f"{display} does not exist; write it instead", "FS_NOT_FOUND", display)
        return ReplaceIfVersion(version)

    def _seen(self, actor: object | None) -> _Seen:
        return {} if actor is None else self._memory.get(actor, {})
