"""What admission has to know of the surface, kept up to date instead of looked up."""

from dsh_llm import Message, PromptFallbackSource, RuntimeContextSource, message_text
from dsh_session import Session, SystemMessageEvent, UserMessageEvent

from .admission import Surface, SystemNode, node_text
from .texts import CLEARED_PROMPT


class SurfaceWatch:
    """System nodes, prompt fallback and runtime context of one session.

    A look costs as much as was appended since the last one; only a rewritten surface is read anew.
    """

    __slots__ = (
        "_fallback",
        "_generation",
        "_seen",
        "_session",
        "_snapshot",
        "_system",
    )

    def __init__(self, session: Session) -> None:
        self._session = session
        self._generation = session.surface.content_generation
        self._start_over()

    @property
    def surface(self) -> Surface:
        """What prompt admission looks at."""
        self._catch_up()
        nodes = self._session.surface.nodes
        return Surface(
            empty=not nodes,
            head_is_system=bool(self._system) and self._system[0].seq == nodes[0],
            system_nodes=tuple(self._system),
            fallback_text=self._fallback,
        )

    @property
    def snapshot(self) -> Message | None:
        """The last runtime context that the model still sees."""
        self._catch_up()
        return self._snapshot

    def _start_over(self) -> None:
        self._seen = 0
        self._system: list[SystemNode] = []
        self._fallback: str | None = None
        self._snapshot: Message | None = None

    def _catch_up(self) -> None:
        surface = self._session.surface
        if surface.content_generation != self._generation:
            self._generation = surface.content_generation
            self._start_over()
        nodes = surface.nodes
        for index in range(self._seen, len(nodes)):
            self._take(nodes[index])
        self._seen = len(nodes)

    def _take(self, seq: int) -> None:
        data = self._session.event_at(seq).data
        if isinstance(data, SystemMessageEvent):
            self._system.append(SystemNode(seq, node_text(data.message)))
        elif isinstance(data, UserMessageEvent):
            self._take_user(data.message)

    def _take_user(self, message: Message) -> None:
        if isinstance(message.source, RuntimeContextSource):
            self._snapshot = message
        elif isinstance(message.source, PromptFallbackSource):
            text = message_text(message)
            self._fallback = None if text == CLEARED_PROMPT else text
