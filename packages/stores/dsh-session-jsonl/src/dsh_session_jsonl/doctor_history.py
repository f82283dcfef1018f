"""What the valid events of a log say together: open turns, calls, streams."""

from typing import Final

from dsh_brand import HarnessError
from dsh_llm import expand_assistant_stream, request_repairs
from dsh_session import (
    AssistantAttempt,
    AssistantMessageEvent,
    Session,
    ToolResultEvent,
    TurnStart,
    derive_event_message,
    inherited_count_of,
    interrupted_turn_closers,
)
from dsh_session_jsonl.doctor_log import LogExamination

_IN_WORDS: Final = {
    "text-replaced": "holds half characters that no request can carry",
    "content-filled": "has no content",
    "message-dropped": "has no content",
    "answer-moved": "the result of a call stands in another place than behind its call",
    "answer-dropped": "a result answers no call",
    "answer-filled": "a call has no result",
    "call-renamed": "the id of a call was used before",
    "arguments-replaced": "the arguments of a call are no JSON object",
}
_IN_REQUESTS: Final = {
    "text-replaced": "requests show U+FFFD instead",
    "content-filled": "requests say `(no content)` instead",
    "message-dropped": "requests leave it out",
    "answer-moved": "requests have it in its place",
    "answer-dropped": "requests leave it out",
    "answer-filled": "requests say that its outcome is not recorded",
    "call-renamed": "requests give it another id",
    "arguments-replaced": "requests have `{}` instead",
}


def examine_history(examination: LogExamination) -> None:
    """Add to the findings what concerns the events of a log that opens."""
    header = examination.header
    if header is None:
        return
    _examine_turn(examination)
    _examine_streams(examination)
    try:
        events = [*examination.events, *interrupted_turn_closers(examination.events)]
        session = Session.from_restore(header.id, events, header, inherited_count_of(events))
    except HarnessError as error:
        examination.note(
            "not-resumable", "error", error.message, "opens for reading, and cannot be resumed"
        )
        return
    _examine_requests(examination, session)


def _examine_turn(examination: LogExamination) -> None:
    closers = interrupted_turn_closers(examination.events)
    if not closers:
        return
    start = next(e for e in reversed(examination.events) if isinstance(e.data, TurnStart))
    results = sum(isinstance(event.data, ToolResultEvent) for event in closers)
    assert isinstance(start.data, TurnStart)
    message = f"turn {start.data.turn} is open, with {results} calls unanswered"
    on_open = (
        f"whoever resumes the session closes it as interrupted, with {len(closers)} more events; "
        "readers see it open"
    )
    examination.note("open-turn", "warning", message, on_open, seq=start.seq)


def _examine_streams(examination: LogExamination) -> None:
    for event in examination.events:
        if not isinstance(event.data, AssistantMessageEvent | AssistantAttempt):
            continue
        try:
            for _ in expand_assistant_stream(event.data.stream):
                pass
        except ValueError as error:
            message = f"the stream of the attempt is damaged: {error}"
            on_open = "nothing: only what replays or shows the stream meets it"
            examination.note("bad-stream", "warning", message, on_open, seq=event.seq)


def _examine_requests(examination: LogExamination, session: Session) -> None:
    messages = session.derive_messages()
    seqs = _seqs_by_message(session)
    for repair in request_repairs(messages):
        call = "" if repair.call_id is None else f", call {repair.call_id!r}"
        message = f"{_IN_WORDS[repair.kind]} (message {repair.message_id!r}{call})"
        seq = None if repair.message_id is None else seqs.get(repair.message_id)
        examination.note(repair.kind, "warning", message, _IN_REQUESTS[repair.kind], seq=seq)


def _seqs_by_message(session: Session) -> dict[str, int]:
    nodes = (session.event_at(seq) for seq in session.surface.nodes)
    found = ((derive_event_message(event), event) for event in nodes)
    return {message.id: event.seq for message, event in found if message is not None}


__all__ = ["examine_history"]
