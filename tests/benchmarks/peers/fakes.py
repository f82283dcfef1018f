"""The script as a model of each peer: their own fake where they offer one, else their interface."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

from .script import ARGUMENTS, DELTAS, Script, peer, subclass


def for_pydantic_ai(script: Script) -> Any:
    """Their `FunctionModel`."""
    of = peer("pydantic_ai.models.function")

    async def stream(messages: object, info: object) -> AsyncIterator[object]:
        if (call := script.call()) is not None:
            yield {0: of.DeltaToolCall("add", ARGUMENTS, tool_call_id=call)}
            return
        for word in DELTAS:
            yield word

    return of.FunctionModel(stream_function=stream)


def for_langgraph(script: Script) -> Any:
    """Their fake chat model, which streams no tool calls itself, over the script."""
    chunk = peer("langchain_core.outputs").ChatGenerationChunk
    message = peer("langchain_core.messages").AIMessageChunk

    async def stream(self: object, *_: object, **__: object) -> AsyncIterator[object]:
        if (call := script.call()) is not None:
            part = {"name": "add", "args": ARGUMENTS, "id": call, "index": 0}
            yield chunk(message=message(content="", tool_call_chunks=[part]))
            return
        for word in DELTAS:
            yield chunk(message=message(content=word))

    base = peer("langchain_core.language_models.fake_chat_models").GenericFakeChatModel
    return subclass(base, _astream=stream, __module__=__name__)(messages=iter(()))


def for_agents_sdk(script: Script) -> Any:
    """An implementation of their interface of a model."""
    of = peer("openai.types.responses")

    async def stream(self: object, *_: object, **__: object) -> AsyncIterator[object]:
        call = script.call()
        if call is None:
            for at, word in enumerate(DELTAS):
                yield of.ResponseTextDeltaEvent(
                    content_index=0,
                    delta=word,
                    item_id="i",
                    logprobs=[],
                    output_index=0,
                    sequence_number=at,
                    type="response.output_text.delta",
                )
            text = of.ResponseOutputText(
                annotations=[], text="".join(DELTAS), type="output_text", logprobs=[]
            )
            item = of.ResponseOutputMessage(
                id="i", content=[text], role="assistant", status="completed", type="message"
            )
        else:
            item = of.ResponseFunctionToolCall(
                arguments=ARGUMENTS, call_id=call, name="add", type="function_call"
            )
        response = of.Response(
            id="r",
            created_at=0,
            model="m",
            object="response",
            output=[item],
            parallel_tool_calls=False,
            tool_choice="auto",
            tools=[],
        )
        yield of.ResponseCompletedEvent(
            response=response, sequence_number=len(DELTAS), type="response.completed"
        )

    return subclass(peer("agents").Model, stream_response=stream, get_response=refuse)()


def for_smolagents(script: Script) -> Any:
    """An implementation of their interface of a model."""
    of = peer("smolagents.models")

    def stream(self: object, *_: object, **__: object) -> Iterator[object]:
        def piece(text: str | None, name: str = "", call: str | None = None) -> object:
            function = of.ChatMessageToolCallFunction(name=name, arguments=text)
            delta = of.ChatMessageToolCallStreamDelta(0, call, "function", function)
            return of.ChatMessageStreamDelta(tool_calls=[delta])

        if (call := script.call()) is not None:
            yield piece(ARGUMENTS, "add", call)
            return
        yield piece('{"answer": "', "final_answer", "final")
        for word in DELTAS:
            yield piece(word)
        yield piece('"}')

    return subclass(of.Model, generate_stream=stream)(model_id="m")


def for_agno(script: Script) -> Any:
    """An implementation of their interface of a model."""
    response = peer("agno.models.response").ModelResponse

    async def stream(self: object, *_: object, **__: object) -> AsyncIterator[object]:
        if (call := script.call()) is not None:
            function = {"name": "add", "arguments": ARGUMENTS}
            yield response(tool_calls=[{"id": call, "type": "function", "function": function}])
            return
        for word in DELTAS:
            yield response(content=word)

    names = ("invoke", "ainvoke", "invoke_stream", "_parse_provider_response")
    members: dict[str, object] = dict.fromkeys([*names, "_parse_provider_response_delta"], refuse)
    return subclass(peer("agno.models.base").Model, ainvoke_stream=stream, **members)(id="m")


def for_strands(script: Script) -> Any:
    """An implementation of their interface of a model."""

    async def stream(self: object, *_: object, **__: object) -> AsyncIterator[object]:
        call = script.call()
        yield {"messageStart": {"role": "assistant"}}
        if call is None:
            yield {"contentBlockStart": {"start": {}}}
            for word in DELTAS:
                yield {"contentBlockDelta": {"delta": {"text": word}}}
        else:
            yield {"contentBlockStart": {"start": {"toolUse": {"toolUseId": call, "name": "add"}}}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": ARGUMENTS}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if call is None else "tool_use"}}

    names = ("update_config", "structured_output")
    members: dict[str, object] = dict.fromkeys(names, refuse)
    members["get_config"] = lambda self: {"model_id": "m"}
    return subclass(peer("strands.models").Model, stream=stream, **members)()


def refuse(self: object, *_: object, **__: object) -> object:
    """What no turn here calls."""
    raise NotImplementedError
