"""The switch that keeps the requests of a test on this machine."""

from collections.abc import AsyncGenerator, AsyncIterator

import anyio
import pytest
from anyio.lowlevel import checkpoint
from typing_extensions import override

from dsh_cordis import Context
from dsh_llm import (
    ErrorFinish,
    FinishChunk,
    GenerateOptions,
    LlmError,
    LlmService,
    NormalRetryPolicy,
    StreamChunk,
    codes,
    create_user_message,
    refuse_real_request,
    resolve_retry_policy,
)
from dsh_llm.testing import FakeAdapter, forbid_real_requests

REMOTE = "https://user:secret-in-url@api.example.com/v1?key=secret-in-query"


@pytest.fixture
async def ctx() -> AsyncIterator[Context]:
    async with Context() as root:
        yield root


class RemoteAdapter(FakeAdapter):
    """As an adapter over HTTP: it asks before it would open a connection."""

    @override
    async def stream(self, options: GenerateOptions) -> AsyncGenerator[StreamChunk, None]:
        await checkpoint()
        refuse_real_request(REMOTE)
        async for chunk in super().stream(options):
            yield chunk


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/v1", "http://localhost/v1", "http://[::1]:8/v1", "http://x.localhost/"],
)
def test_loopback_stays_open(url: str) -> None:
    with forbid_real_requests():
        refuse_real_request(url)


def test_only_the_host_of_the_refused_url_is_shown() -> None:
    with forbid_real_requests(), pytest.raises(LlmError) as caught:
        refuse_real_request(REMOTE)
    assert caught.value.code == codes.REAL_REQUEST_FORBIDDEN
    assert "'api.example.com'" in caught.value.message
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("url", ["http://192.0.2.1", "http://localhost.example.com", "http://"])
def test_everything_else_is_forbidden_until_the_last_block_ends(url: str) -> None:
    with forbid_real_requests():
        with forbid_real_requests():
            pass
        with pytest.raises(LlmError):
            refuse_real_request(url)
    refuse_real_request(url)


def test_the_refusal_is_not_retried_by_default() -> None:
    policy = resolve_retry_policy()
    assert isinstance(policy, NormalRetryPolicy)
    assert codes.REAL_REQUEST_FORBIDDEN not in policy.retryable_codes


async def test_a_call_that_would_leave_ends_with_the_code(ctx: Context) -> None:
    await ctx.plugin(LlmService)
    llm = ctx.get(LlmService)
    assert llm is not None
    llm.register_adapter(["far"], RemoteAdapter())
    options = GenerateOptions(provider="far", model="m", messages=[create_user_message("hi")])
    with forbid_real_requests(), anyio.fail_after(5):
        [finish] = [chunk async for chunk in llm.stream(options)]
    assert isinstance(finish, FinishChunk)
    assert isinstance(finish.reason, ErrorFinish)
    assert finish.reason.failure.code == codes.REAL_REQUEST_FORBIDDEN
