"""A companion that checks each request of the loop against the log it claims to come from.

What the model sees is in the log: messages, configuration and tools of a request equal what a fresh
reading of the log gives. Mounted in tests and while developing plugins; it costs a reading of the
whole log per request.
"""

from collections.abc import AsyncIterator, Callable

from dsh_brand import HarnessError
from dsh_cordis import Context
from dsh_llm import (
    GenerateOptions,
    LlmStreamEvent,
    StreamChunk,
    call_config_equals,
    is_agent_loop_request,
    request_messages,
)
from dsh_session import Session, SessionId, SessionStore, decode_event, encode_event


class RequestInvariantError(HarnessError):
    """A request of the loop is not what its log says."""

    def __init__(self, session_id: str, what: str) -> None:
        super().__init__(
            f"the {what} of a request of session {session_id!r} differ from what its log gives; "
            "no listener may write to the surface while a request is built",
            "INVARIANT",
        )


class InvariantContext(Context):
    """What the companion needs."""

    sessions: SessionStore


def invariant(ctx: InvariantContext) -> None:
    """Mount the companion before every other listener of `llm/stream`."""

    def check(
        event: LlmStreamEvent, next_: Callable[[], AsyncIterator[StreamChunk]]
    ) -> AsyncIterator[StreamChunk]:
        session_id = event.options.session_id
        if session_id is not None and is_agent_loop_request(event.options):
            session = ctx.sessions.get(SessionId(session_id))
            if session is not None:
                check_request_of(session, event.options)
        return next_()

    ctx.on(LlmStreamEvent, check, prepend=True, everywhere=True)


def check_request_of(session: Session, options: GenerateOptions) -> None:
    """Compare a request with a fresh reading of its session's log.

    Raises:
        RequestInvariantError: They differ.
    """
    # Through the bytes: what only lives in memory must not count.
    stored = [decode_event(encode_event(event)) for event in session.events]
    fresh = Session.from_restore(session.id, stored, session.header, session.inherited_event_count)
    if tuple(request_messages(fresh.derive_messages())) != tuple(options.messages):
        raise RequestInvariantError(session.id, "messages")
    header = fresh.request_header()
    if header is None or not call_config_equals(header.config, options):
        raise RequestInvariantError(session.id, "call settings")
    if (header.tools or ()) != tuple(options.tools or ()) or options.system is not None:
        raise RequestInvariantError(session.id, "tools or prompt")
