"""Telling an owner that a job of its has ended.

Upstream: packages/shell/tool-jobs/src/notices.ts.
"""

from typing import Final
from weakref import WeakKeyDictionary

import structlog
from structlog.typing import FilteringBoundLogger

from dsh_agent import Agent, InboxClaimed
from dsh_brand import HarnessError
from dsh_llm import (
    MessageId,
    ProducerSource,
    bound_context_summary,
    create_user_message,
    register_source,
)

from . import texts
from .jobs import Job

log: FilteringBoundLogger = structlog.get_logger(__name__)

MAX_WAKES: Final = 3
"""Turns in a row that the ends of jobs may open on their own."""


@register_source
class ToolJobsSource(ProducerSource, frozen=True, tag="tool-jobs"):
    """The end of a background job."""


def status_of(job: Job) -> str:
    """State and detail in a few words."""
    detail = "" if job.end is None else job.end.detail
    return f"{job.state} ({detail})" if detail else job.state


class JobNotices:
    """Tells of ends that no tool has shown, and wakes an idle owner, within limits.

    A woken agent may start the next job, whose end would wake it again: without a person in
    between that ends after a few rounds, and further notices wait for the next turn.
    """

    def __init__(self) -> None:
        self._wakes: WeakKeyDictionary[Agent, int] = WeakKeyDictionary()
        self._told: WeakKeyDictionary[Job, MessageId] = WeakKeyDictionary()

    def claimed(self, event: InboxClaimed) -> None:
        """A message of a person was taken up: wakes are free again."""
        if event.message.source.kind == "user":
            self._wakes.pop(event.agent, None)

    def seen(self, job: Job) -> None:
        """A tool shows a job: if it has ended, a notice that nobody has read is taken back."""
        if job.live:
            return
        job.reported = True
        message_id = self._told.pop(job, None)
        if message_id is not None:
            _ = job.owner.inbox.remove(message_id)

    def ended(self, job: Job) -> None:
        """A job has ended."""
        if job.reported:
            return
        job.reported = True
        text = texts.JOB_ENDED.format(job_id=job.id, label=job.label, status=status_of(job))
        source = ToolJobsSource(form="notice", summary=bound_context_summary(text))
        message = create_user_message(text, source)
        agent = job.owner
        wakes = self._wakes.get(agent, 0)
        try:
            if agent.status == "running" or wakes >= MAX_WAKES:
                agent.inject(message)
            else:
                self._wakes[agent] = wakes + 1
                agent.followup(message)
            self._told[job] = message.id
        except HarnessError as error:
            log.info("jobs.notice_undelivered", job=job.id, code=error.code)
