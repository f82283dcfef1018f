"""Tells which plugin changed the cached prefix of an agent's requests, and when.

A plugin: ``from dsh_tools import prefix_report``, ``ctx.plugin(prefix_report)``, and then
`ctx.prefix_report.of(session)`. It costs one comparison for each system message or request header
that is logged.
"""

from typing import ClassVar, cast
from weakref import WeakKeyDictionary

import msgspec

from dsh_agent import Agent
from dsh_cordis import Context, Next, Service
from dsh_llm import message_text
from dsh_session import RequestHeaderEvent, Session, SessionEventAppended, SystemMessageEvent
from dsh_system_prompt import (
    PrefixChange,
    PromptAssembly,
    PromptPrefix,
    PromptVariableError,
    SystemPromptAssemble,
    compare_prefixes,
    prefix_of,
)


class PrefixEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the prefix of a session."""

    seq: int
    """Of the logged event that carries the new prefix."""
    time: int
    """Of that event, in milliseconds."""
    changes: tuple[PrefixChange, ...]


class _Watched:
    """What is known of one session."""

    def __init__(self) -> None:
        self.assembled: PromptPrefix | None = None
        self.logged: PromptPrefix | None = None
        self.entries: list[PrefixEntry] = []


class PrefixReport(Service):
    """The changes of the cached prefix since this process took up each session."""

    key: ClassVar[str] = "prefix_report"

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._watched: WeakKeyDictionary[Session, _Watched] = WeakKeyDictionary()
        # Outermost, since what the last listener answers is what is used.
        ctx.on(SystemPromptAssemble, self._assembled, prepend=True, everywhere=True)
        ctx.on(SessionEventAppended, self._appended, everywhere=True)

    def of(self, session: Session) -> tuple[PrefixEntry, ...]:
        """The changes in one session, oldest first; the first prefix is none."""
        watched = self._watched.get(session)
        return () if watched is None else tuple(watched.entries)

    async def _assembled(
        self, event: SystemPromptAssemble, next_: Next[PromptAssembly]
    ) -> PromptAssembly:
        assembly = await next_()
        agent = cast("Agent | None", event.context.agent)  # opaque there, an agent from the loop
        if agent is not None:
            self._of(agent.session).assembled = _readable(assembly)
        return assembly

    def _appended(self, event: SessionEventAppended) -> None:
        data = event.event.data
        if not isinstance(data, SystemMessageEvent | RequestHeaderEvent):
            return
        watched = self._of(event.session)
        after = watched.assembled
        if after is None:
            return
        if isinstance(data, SystemMessageEvent):
            after = _as_sent(after, message_text(data.message))
        before, watched.logged = watched.logged, after
        if before is None:
            return
        # The two events carry one half each; the other half is as it was.
        kept: dict[str, object]
        if isinstance(data, SystemMessageEvent):
            kept = {"tools": before.tools, "tool_owners": before.tool_owners}
        else:
            kept = {
                "sections": before.sections,
                "section_owners": before.section_owners,
                "section_variables": before.section_variables,
            }
        watched.logged = msgspec.structs.replace(after, **kept)
        changes = compare_prefixes(before, watched.logged)
        if changes:
            entry = PrefixEntry(seq=event.event.seq, time=event.event.time, changes=changes)
            watched.entries.append(entry)
            self._tell(event.session, entry)

    def _tell(self, session: Session, entry: PrefixEntry) -> None:
        for change in entry.changes:
            self.ctx.log.info(
                "prompt.prefix_changed",
                session=session.id,
                seq=entry.seq,
                what=change.what,
                name=change.name,
                change=change.change,
                owner=change.owner,
                variables=change.variables,
            )

    def _of(self, session: Session) -> _Watched:
        return self._watched.setdefault(session, _Watched())


def _readable(assembly: PromptAssembly) -> PromptPrefix | None:
    try:
        return prefix_of(assembly)
    except PromptVariableError:
        return None  # whoever renders it has more to say about that


def _as_sent(prefix: PromptPrefix, text: str) -> PromptPrefix:
    """`prefix`, with one section for all where a complete one took the others' place."""
    sent = text.encode("utf-8", "surrogatepass")
    if b"\n\n".join(prefix.sections.values()) == sent:
        return prefix
    return msgspec.structs.replace(prefix, sections={"(the whole prompt)": sent})


def apply(ctx: Context) -> None:
    """Provide `ctx.prefix_report`."""
    PrefixReport(ctx)


name = "prefix-report"
