"""The commit section of a request: prompt, batch, header and context, without a suspension."""

from collections.abc import Sequence

import msgspec

from dsh_llm import (
    LlmCallConfig,
    Message,
    PreparedCall,
    PromptFallbackSource,
    TextBlock,
    ToolSchema,
    create_system_message,
    create_user_message,
)
from dsh_session import (
    ReplaceOp,
    RequestContext,
    RequestHeader,
    RequestHeaderEvent,
    Session,
    SystemMessageEvent,
    UserMessageEvent,
    header_equals,
)

from .admission import (
    AppendPrompt,
    FallbackPrompt,
    PromptChange,
    ReplacePrompt,
    admit_header,
    admit_prompt,
    context_changed,
)
from .agent import LoopAgent
from .texts import CLEARED_PROMPT


class CommitPlan(msgspec.Struct, frozen=True):
    """What goes into the log for one attempt."""

    turn: int
    step: int
    rendered: str
    batch: tuple[Message, ...]
    """Empty for a retry: its batch is in the history already."""
    starts_series: bool
    config: LlmCallConfig
    tools: tuple[ToolSchema, ...]
    prepared: PreparedCall | None


def commit_request(agent: LoopAgent, plan: CommitPlan) -> Sequence[ToolSchema] | None:
    """Log what the request is made of.

    Returns:
        The tools of the header, in its canonical form.
    """
    session = agent.session
    previous = session.request_header()
    marks = None if plan.prepared is None else plan.prepared.adapter_defaults
    header = agent.headers.make(plan.config, marks, plan.tools, previous)
    _commit_prompt(agent, plan, header, previous)
    for message in plan.batch:
        session.append(UserMessageEvent(message=message), surface_op="append")
    # Looked at only now: a replaced prompt begins a series, too.
    series = plan.starts_series or _series_began(agent)
    decision = admit_header(header, previous, first=agent.requests == 0, series=series)
    if decision is not None:
        session.append(
            RequestHeaderEvent(
                header=header,
                reason=decision.reason,
                starts_series=decision.starts_series or None,
            )
        )
    agent.headers.note(plan.tools, session.request_header())
    _commit_context(session, plan)
    agent.requests += 1
    agent.noted_generation = session.surface.content_generation
    return header.tools


def _commit_prompt(
    agent: LoopAgent, plan: CommitPlan, header: RequestHeader, previous: RequestHeader | None
) -> None:
    in_history = plan.prepared is not None and plan.prepared.system_prompt_update == "in-history"
    consolidate = (
        not in_history
        or plan.starts_series
        or _series_began(agent)
        or not (previous is None or _same_tools(header, previous))
    )
    for change in admit_prompt(plan.rendered, agent.watch.surface, consolidate=consolidate):
        _apply(agent.session, plan, change)


def _same_tools(header: RequestHeader, previous: RequestHeader) -> bool:
    return header is previous or header_equals(
        RequestHeader(config=previous.config, tools=header.tools),
        RequestHeader(config=previous.config, tools=previous.tools),
    )


def _apply(session: Session, plan: CommitPlan, change: PromptChange) -> None:
    match change:
        case AppendPrompt(text=text):
            session.append(_system_event(plan, text), surface_op="append")
        case ReplacePrompt(seq=seq, text=text):
            session.append(
                _system_event(plan, text),
                surface_op=ReplaceOp(start_seq=seq, end_seq=seq),
                source_event_seqs=(seq,),
            )
        case FallbackPrompt(text=text):
            message = create_user_message(
                [TextBlock(text or CLEARED_PROMPT)], source=PromptFallbackSource()
            )
            session.append(UserMessageEvent(message=message), surface_op="append")


def _system_event(plan: CommitPlan, text: str) -> SystemMessageEvent:
    return SystemMessageEvent(turn=plan.turn, step=plan.step, message=create_system_message(text))


def _series_began(agent: LoopAgent) -> bool:
    return agent.session.surface.content_generation != agent.noted_generation


def _commit_context(session: Session, plan: CommitPlan) -> None:
    prepared = plan.prepared
    current = RequestContext(
        provider=plan.config.provider,
        model=plan.config.model,
        context_window=(
            None
            if prepared is None or prepared.context is None
            else prepared.context.context_window
        ),
        system_prompt_update=None if prepared is None else prepared.system_prompt_update,
    )
    if context_changed(current, session.request_context()):
        session.append(current)
