"""The mock server, in a process of its own: `python -m tests.benchmarks.peers.serve`."""

import sys
from collections.abc import Mapping

import anyio

from dsh_llm_scripted import Call, MockServer, RecordedRequest, Speech

from .script import ANSWER


def answer(body: Mapping[str, object]) -> Speech:
    """The number of messages that came, and the text; as a call where the peer wants a call."""
    messages, tools = body["messages"], body["tools"]
    assert isinstance(messages, list)
    assert isinstance(tools, list)
    text = f"{len(messages)} {ANSWER}"
    if any(tool["function"]["name"] == "final_answer" for tool in tools):
        return Speech(calls=(Call("final_answer", {"answer": text}, f"call_{len(messages)}"),))
    return Speech(text=text)


async def main() -> None:
    """Say where, and answer until killed."""

    def forget(record: RecordedRequest) -> None:
        server.requests.remove(record)

    async with MockServer(answer, repeat_last=True, observer=forget) as server:
        sys.stdout.write(f"{server.base_url}\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main)
