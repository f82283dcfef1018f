"""A model that answers from a recorded log and insists on the recorded requests."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import NoReturn

import msgspec

from dsh_brand import HarnessError, JsonValue, to_json
from dsh_llm import (
    AbortSignal,
    FinishChunk,
    GenerateOptions,
    LlmError,
    LlmModelContext,
    LlmModelInfo,
    LlmModelReasoningInfo,
    LlmProviderInfo,
    LlmReasoningEffortInfo,
    LlmResolvedModelInfo,
    Message,
    RequestMessage,
    StreamChunk,
    codes,
    expand_assistant_stream,
    request_messages,
)
from dsh_session._difference import differences
from dsh_session.events import (
    AssistantAttempt,
    AssistantMessageEvent,
    RequestContext,
    RequestHeader,
    SessionEvent,
)
from dsh_session.headers import canonical_header, header_of
from dsh_session.log_rules import inherited_count_of
from dsh_session.message_projections import MessageProjections
from dsh_session.session import Session
from dsh_session.surface import SurfaceManager

Comparable = Callable[[Message], JsonValue]
"""What of a message has to be as it was recorded."""


class ReplayMismatchError(HarnessError, AssertionError):
    """What is asked of the model is not what was asked when the log was recorded."""

    def __init__(self, message: str) -> None:
        super().__init__(message, "REPLAY_MISMATCH")


class RecordedAttempt(msgspec.Struct, frozen=True):
    """One attempt of a log: the request that the log derives at that point, and the answer."""

    seq: int
    turn: int
    step: int
    header: RequestHeader | None
    context: RequestContext | None
    messages: Sequence[RequestMessage]
    chunks: tuple[StreamChunk, ...]


def comparable_message(message: Message) -> JsonValue:
    """The whole message but its id, which is made anew in each run."""
    value = to_json(message)
    assert isinstance(value, dict)
    return {key: item for key, item in value.items() if key != "id"}


def recorded_attempts(
    events: Sequence[SessionEvent], projections: MessageProjections | None = None
) -> list[RecordedAttempt]:
    """The attempts of a log, its fork prefix left out."""
    surface = SurfaceManager(events.__getitem__, projections=projections)
    first = inherited_count_of(events)
    header: RequestHeader | None = None
    context: RequestContext | None = None
    attempts: list[RecordedAttempt] = []
    for event in events:
        data = event.data
        if isinstance(data, AssistantMessageEvent | AssistantAttempt) and event.seq >= first:
            nodes = (surface.message(seq) for seq in surface.nodes)
            history = [message for message in nodes if message is not None]
            attempts.append(
                RecordedAttempt(
                    event.seq,
                    data.turn,
                    data.step,
                    header,
                    context,
                    request_messages(history),
                    _chunks(event.seq, data),
                )
            )
        elif isinstance(data, RequestContext):
            context = data
        elif (logged := header_of(event)) is not None:
            header = canonical_header(logged)
        surface.apply(event)
    return attempts


def _chunks(seq: int, data: AssistantMessageEvent | AssistantAttempt) -> tuple[StreamChunk, ...]:
    try:
        timed = list(expand_assistant_stream(data.stream))
    except ValueError as error:
        raise ValueError(f"the stream of seq {seq} cannot be replayed: {error}") from error
    return tuple(chunk for _, chunk in timed if isinstance(chunk, StreamChunk))


class ReplayModel:
    """An `LlmAdapter` that plays a log: one recorded attempt for each request.

    A request that is not the recorded one fails the call with `ReplayMismatchError`; as the loop
    turns that into a failed turn, a test ends with `check()`, which raises it again.

    Attributes:
        attempts: What the log holds.
        played: How many of them were asked for.
        mismatches: What was wrong, in order.
    """

    def __init__(
        self,
        events: Iterable[SessionEvent],
        compare: Comparable,
        projections: MessageProjections | None = None,
    ) -> None:
        self.attempts = recorded_attempts(list(events), projections)
        self.played = 0
        self.mismatches: list[ReplayMismatchError] = []
        self._compare = compare

    @property
    def providers(self) -> list[str]:
        """The routes of the log, to be registered."""
        headers = (attempt.header for attempt in self.attempts)
        return list(dict.fromkeys(h.config.provider for h in headers if h is not None))

    def check(self) -> None:
        """Raise if a request differed from the log, or an attempt of the log was not asked for.

        Raises:
            ReplayMismatchError: The first difference.
        """
        if self.mismatches:
            raise self.mismatches[0]
        if self.played < len(self.attempts):
            raise ReplayMismatchError(
                f"the log has {len(self.attempts)} attempts, only {self.played} were asked for; "
                f"next is {_name(self.attempts[self.played], self.played)}"
            )

    async def stream(self, options: GenerateOptions) -> AsyncIterator[StreamChunk]:
        """Answer as recorded; a stream that was recorded without an end waits to be aborted.

        Raises:
            ReplayMismatchError: The request is not the recorded one.
            LlmError: The request was aborted.
        """
        attempt = self._expected(options)
        for chunk in attempt.chunks:
            yield chunk
        if attempt.chunks and isinstance(attempt.chunks[-1], FinishChunk):
            return
        if options.signal is None:
            self._fail("the recorded stream was aborted, and this request has no signal")
        else:
            await options.signal.wait()
            raise LlmError("the request was aborted by its caller", codes.ABORTED)

    async def list_models(
        self, provider: str, signal: AbortSignal | None = None
    ) -> Sequence[LlmModelInfo]:
        """The models of the route that the log names."""
        configs = (a.header.config for a in self.attempts if a.header is not None)
        names = dict.fromkeys(c.model for c in configs if c.provider == provider)
        return [LlmModelInfo(provider=provider, id=name, name=name) for name in names]

    async def resolve_model(
        self, provider: str, model: str, signal: AbortSignal | None = None
    ) -> LlmResolvedModelInfo:
        """The facts of a model as the log shows them at the next attempt."""
        bare = LlmResolvedModelInfo(provider=provider, id=model, name=model)
        for attempt in self.attempts[self.played :]:
            header = attempt.header
            if header is not None and (header.config.provider, header.config.model) == (
                provider,
                model,
            ):
                return _facts(bare, header, attempt.context)
        return bare

    def provider_info(self, provider: str) -> LlmProviderInfo:
        """The route."""
        return LlmProviderInfo(id=provider, name=provider)

    def provider_retry_policy(self, provider: str) -> None:
        """No policy of its own."""

    def _expected(self, options: GenerateOptions) -> RecordedAttempt:
        if options.purpose is not None:
            self._fail(f"a log holds no answers to calls for {options.purpose!r}")
        if self.played >= len(self.attempts):
            self._fail(f"the log has {len(self.attempts)} attempts, and one more is asked for")
        attempt = self.attempts[self.played]
        found = self._differences(attempt, options)
        if found:
            name = _name(attempt, self.played)
            self._fail(f"{name} differs from the log: {'; '.join(found)}")
        self.played += 1
        return attempt

    def _differences(self, attempt: RecordedAttempt, options: GenerateOptions) -> tuple[str, ...]:
        expected = {} if attempt.header is None else _object(attempt.header)
        config = {
            key: to_json(getattr(options, name))
            for key, name in _CONFIG.items()
            if getattr(options, name) is not None
        }
        return (
            *differences(expected.get("config"), config, "config"),
            *differences(expected.get("tools", []), to_json(options.tools or ()), "tools"),
            *differences(
                [self._comparable(message) for message in attempt.messages],
                [self._comparable(message) for message in options.messages],
                "messages",
            ),
        )

    def _comparable(self, message: RequestMessage) -> JsonValue:
        return self._compare(message) if isinstance(message, Message) else to_json(message)

    def _fail(self, message: str) -> NoReturn:
        error = ReplayMismatchError(message)
        self.mismatches.append(error)
        raise error


_CONFIG: Mapping[str, str] = {
    "provider": "provider",
    "model": "model",
    "reasoningEffort": "reasoning_effort",
    "temperature": "temperature",
    "maxTokens": "max_tokens",
    "stop": "stop",
}


def replay_model(
    log: Session | Iterable[SessionEvent], *, compare: Comparable = comparable_message
) -> ReplayModel:
    """A model that answers from a log: register it under `.providers`, end with `.check()`.

    Each request has to be the one that the log derives at that point: config, tools and messages.

    Args:
        log: A session, or the events of a log.
        compare: What of a message counts; by default all but its id. Leave out what changes from
            run to run, such as a time of day in a context message.

    Raises:
        ValueError: A recorded stream is damaged.
    """
    if isinstance(log, Session):
        return ReplayModel(log.events, compare, log.surface.projections)
    return ReplayModel(log, compare)


def _facts(
    bare: LlmResolvedModelInfo, header: RequestHeader, context: RequestContext | None
) -> LlmResolvedModelInfo:
    config, marks = header.config, header.adapter_defaults
    effort = config.reasoning_effort
    window = None if context is None else context.context_window
    reasoning = None
    if effort is not None:
        default = effort if marks is not None and marks.reasoning_effort else None
        offered = (LlmReasoningEffortInfo(id=effort, name=effort),)
        reasoning = LlmModelReasoningInfo(efforts=offered, default_effort=default)
    return msgspec.structs.replace(
        bare,
        context=None if window is None else LlmModelContext(context_window=window),
        default_max_tokens=config.max_tokens if marks is not None and marks.max_tokens else None,
        reasoning=reasoning,
        system_prompt_update=None if context is None else context.system_prompt_update,
    )


def _object(header: RequestHeader) -> dict[str, JsonValue]:
    value = to_json(header)
    assert isinstance(value, dict)
    return value


def _name(attempt: RecordedAttempt, index: int) -> str:
    return f"request {index + 1} (turn {attempt.turn}, step {attempt.step}, seq {attempt.seq})"
