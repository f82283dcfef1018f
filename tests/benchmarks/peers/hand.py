"""The yardsticks: a list of messages and a loop, over httpx, over the client of OpenAI, or a script."""

import json
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx

from .script import ARGUMENTS, DELTAS, PARAMETERS, New, Script, Source, Talk, add, peer

Delta = Mapping[str, Any]  # JSON of the chat completions API


def by_hand(deltas: Callable[[list[Delta]], AsyncIterator[Delta]], *, logged: bool = False) -> New:
    """A list of messages and a loop; `logged`: and a line of JSON for each message, in memory."""

    async def new() -> Talk:
        messages: list[Delta] = []
        lines: list[str] = []

        def keep(message: Delta) -> None:
            messages.append(message)
            if logged:
                seq, made = len(lines), str(uuid.uuid4())
                lines.append(json.dumps({"seq": seq, "time": time.time(), "id": made, **message}))

        async def say(text: str) -> str:
            keep({"role": "user", "content": text})
            while True:
                parts: list[str] = []
                calls: list[Delta] = []
                async for delta in deltas(messages):
                    parts.append(delta.get("content") or "")
                    calls += delta.get("tool_calls") or ()
                content = "".join(parts)
                if not calls:
                    keep({"role": "assistant", "content": content})
                    return content
                keep({"role": "assistant", "content": content, "tool_calls": calls})
                for call in calls:
                    result = add(**json.loads(call["function"]["arguments"]))
                    keep({"role": "tool", "tool_call_id": call["id"], "content": result})

        return say

    return new


def body_of(messages: list[Delta]) -> dict[str, Any]:
    """What both clients by hand send."""
    function = {"name": "add", "description": "Add one to a number.", "parameters": PARAMETERS}
    tools = [{"type": "function", "function": function}]
    return {"model": "m", "messages": messages, "tools": tools, "stream": True}


@asynccontextmanager
async def bare(source: Source) -> AsyncIterator[New]:
    """`httpx` and `json`, or the script."""
    async with httpx.AsyncClient() as client:

        async def posted(messages: list[Delta]) -> AsyncIterator[Delta]:
            url = f"{source}/chat/completions"
            async with client.stream("POST", url, json=body_of(messages)) as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: {"):
                        for choice in json.loads(line[6:])["choices"]:
                            yield choice["delta"]

        async def scripted(messages: list[Delta]) -> AsyncIterator[Delta]:
            assert isinstance(source, Script)
            if (call := source.call()) is not None:
                function = {"name": "add", "arguments": ARGUMENTS}
                yield {"tool_calls": [{"id": call, "type": "function", "function": function}]}
                return
            for word in DELTAS:
                yield {"content": word}

        yield by_hand(posted) if isinstance(source, str) else by_hand(scripted, logged=True)


@asynccontextmanager
async def openai_client(source: Source) -> AsyncIterator[New]:
    """The client of OpenAI."""
    async with peer("openai").AsyncOpenAI(api_key="k", base_url=source) as client:

        async def streamed(messages: list[Delta]) -> AsyncIterator[Delta]:
            stream = await client.chat.completions.create(**body_of(messages))
            async for chunk in stream:
                for choice in chunk.choices:
                    yield {"content": choice.delta.content}

        yield by_hand(streamed)
