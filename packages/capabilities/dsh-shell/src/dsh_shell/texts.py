"""What models read about commands and jobs. A test holds each of them."""

from typing import Final

BASH: Final = (
    "Run a bash command in a fresh shell: nothing persists between calls, neither directory nor "
    "variables. There is no input and no terminal. Returns the end of stdout and stderr, and the "
    "exit code unless it is 0."
)
BASH_COMMAND: Final = "The command, as for `bash -c`."
BASH_DESCRIPTION: Final = "What the command does, in 5 to 10 words, for the user."
BASH_TIMEOUT: Final = "Time limit in milliseconds. Default: {default}. Maximum: {maximum}."
BASH_WORKDIR: Final = (
    "Directory to run in, absolute or relative to the working directory, which is the default."
)
BASH_BACKGROUND: Final = (
    "Return at once with a job id and let the command run on, without a time limit. Read it with "
    "`job_output`. Default: false."
)
BASH_PERMISSIONS: Final = (
    "Ask to run this one command with wider file access than the sandbox allows. The user decides."
)
BASH_JUSTIFICATION: Final = "Why the wider access is needed; shown to the user."

BASH_SECTION: Final = (
    "Use `bash` for builds, tests, version control and other commands. Pass `workdir` instead of "
    "changing the directory. Keep output short with the command's own options; prefer the file "
    "and search tools for reading and finding."
)
BASH_BACKGROUND_SECTION: Final = (
    "Start servers and other long commands with `run_in_background`, not with `&`."
)
JOBS_SECTION: Final = (
    "Background jobs go on while you work; you are told when one ends. Use `job_output` for what a "
    "job printed, `job_list` for an overview, and `job_kill` for a job that is needed no more."
)

JOB_OUTPUT: Final = (
    "Output of a background job: what is new since the last reading, or the final result. Waits "
    "for the job to end, at most for the time given, and leaves it running then."
)
JOB_ID: Final = "Id of the job, such as `bash-1`."
JOB_WAIT: Final = "Wait for the job to end. Default: true; false returns at once."
JOB_TIMEOUT: Final = "Longest wait in milliseconds. Default: 30000. Maximum: 600000."
JOB_LIST: Final = "List your background jobs with their states."
JOB_KILL: Final = "End a background job and all its processes."
JOB_KILL_REASON: Final = "Why; kept with the job."

NO_OUTPUT: Final = "(no output)"
NO_NEW_OUTPUT: Final = "(no new output)"
STDERR: Final = "[stderr]"
TRUNCATED: Final = "[output truncated; full output: {place}]"
UNAVAILABLE: Final = "(unavailable)"
HELD_OPEN: Final = "[a background process still holds the output; what it prints now is not shown]"
SURVIVORS: Final = "[some processes of this command could not be killed]"
DENIED: Final = "[sandbox: file access denied under {mode} mode]"
ESCALATE: Final = (
    "[to retry with wider access, pass sandbox_permissions together with justification]"
)
TIMED_OUT: Final = "[timed out after {timeout_ms}ms]"
KILLED: Final = "[killed by signal: {signal}]"
EXIT_CODE: Final = "[exit code: {code}]"

STARTED: Final = "started background job {job_id}"
LOST: Final = "[earlier output was dropped]"
STATUS: Final = "[status: {status}]"
NO_JOBS: Final = "No background jobs"
KILL_ASKED: Final = "Job {job_id} is {state}."
JOB_ENDED: Final = "Background job {job_id} ({label}) has ended: {status}. Read it with job_output."

BACKGROUND_DISABLED: Final = (
    "run_in_background is disabled for this deployment (enable_run_in_background: false)"
)
BACKGROUND_NEEDS_AGENT: Final = "a background job needs an agent that owns it; run in foreground"

SANDBOX_READ_ONLY: Final = (
    "Commands run in a sandbox in read-only mode: they can read all files and change none."
)
SANDBOX_WORKSPACE: Final = (
    "Commands run in a sandbox in workspace-write mode: they can read all files and change only "
    "those in {root} and in the folders for temporary files."
)
SANDBOX_OPEN: Final = "Commands run without a sandbox (mode danger-full-access)."

LEFT_OUT: Final = "[{count} bytes left out; the whole result is in {place}: {hint}]"
