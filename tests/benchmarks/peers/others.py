"""Agents of others, each used as its own documentation shows it.

They are imported in their own side only, and are no dependency of this project.
"""

import io
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from . import fakes
from .script import BOUND, New, Source, Talk, add, peer


@asynccontextmanager
async def pydantic_ai(source: Source) -> AsyncIterator[New]:
    """`run_stream` with the messages of the last result."""
    agents = peer("pydantic_ai")

    if isinstance(source, str):
        provider = peer("pydantic_ai.providers.openai").OpenAIProvider
        chat = peer("pydantic_ai.models.openai").OpenAIChatModel
        model = chat("m", provider=provider(base_url=source, api_key="k"))
    else:
        model = fakes.for_pydantic_ai(source)

    async def new() -> Talk:
        agent = agents.Agent(model, tools=[add])
        history: Sequence[object] = ()

        async def say(text: str) -> str:
            nonlocal history
            async with agent.run_stream(text, message_history=history) as result:
                parts = [part async for part in result.stream_text(delta=True, debounce_by=None)]
                history = result.all_messages()
            return "".join(parts)

        return say

    yield new


@asynccontextmanager
async def langgraph(source: Source) -> AsyncIterator[New]:
    """The graph of model and tools of its tutorial, a thread of a checkpointer in memory."""
    graphs, prebuilt = peer("langgraph.graph"), peer("langgraph.prebuilt")
    saver = peer("langgraph.checkpoint.memory").InMemorySaver()
    tools = [peer("langchain_core.tools").tool(add)]
    if isinstance(source, str):
        chat = peer("langchain_openai").ChatOpenAI(model="m", base_url=source, api_key="k")
        model = chat.bind_tools(tools)
    else:
        model = fakes.for_langgraph(source)
    numbers = iter(range(1_000_000))

    async def reply(state: Mapping[str, Any]) -> Mapping[str, object]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    async def new() -> Talk:
        graph = graphs.StateGraph(graphs.MessagesState)
        graph.add_node("model", reply)
        graph.add_node("tools", prebuilt.ToolNode(tools))
        graph.add_edge(graphs.START, "model")
        graph.add_conditional_edges("model", prebuilt.tools_condition)
        graph.add_edge("tools", "model")
        compiled = graph.compile(checkpointer=saver)
        thread = {"configurable": {"thread_id": str(next(numbers))}, "recursion_limit": BOUND}

        async def say(text: str) -> str:
            asked = {"messages": [{"role": "user", "content": text}]}
            stream = compiled.astream(asked, thread, stream_mode="messages")
            return "".join(
                [chunk.text async for chunk, about in stream if about["langgraph_node"] == "model"]
            )

        return say

    yield new


@asynccontextmanager
async def agents_sdk(source: Source) -> AsyncIterator[New]:
    """`run_streamed` with a session of SQLite in memory; tracing off."""
    agents = peer("agents")
    agents.set_tracing_disabled(True)
    if isinstance(source, str):
        client = peer("openai").AsyncOpenAI(api_key="k", base_url=source)
        model = agents.OpenAIChatCompletionsModel("m", client)
    else:
        model = fakes.for_agents_sdk(source)
    tool = agents.function_tool(add)
    numbers = iter(range(1_000_000))

    async def new() -> Talk:
        agent = agents.Agent(name="a", model=model, tools=[tool])
        session = agents.SQLiteSession(str(next(numbers)))

        async def say(text: str) -> str:
            result = agents.Runner.run_streamed(agent, text, session=session, max_turns=BOUND)
            return "".join(
                [
                    event.data.delta
                    async for event in result.stream_events()
                    if event.type == "raw_response_event"
                    and event.data.type == "response.output_text.delta"
                ]
            )

        return say

    yield new


@asynccontextmanager
async def smolagents(source: Source) -> AsyncIterator[New]:
    """`ToolCallingAgent` with streamed outputs; its answer is a call of `final_answer`."""
    of = peer("smolagents")
    if isinstance(source, str):
        model = of.OpenAIModel("m", api_base=source, api_key="k")
    else:
        model = fakes.for_smolagents(source)
    tool = of.tool(add)
    console = peer("rich.console").Console(file=io.StringIO(), quiet=True)

    async def new() -> Talk:
        logger = of.AgentLogger(of.LogLevel.OFF, console)
        agent = of.ToolCallingAgent(
            [tool], model, stream_outputs=True, max_steps=BOUND, logger=logger
        )

        async def say(text: str) -> str:
            *_, last = agent.run(text, stream=True, reset=False)
            output: str = last.output
            return output

        return say

    yield new


@asynccontextmanager
async def agno(source: Source) -> AsyncIterator[New]:
    """`arun` with the history of its database in memory; telemetry off."""
    of = peer("agno.agent")
    database = peer("agno.db.in_memory").InMemoryDb()
    if isinstance(source, str):
        model = peer("agno.models.openai.like").OpenAILike(id="m", base_url=source, api_key="k")
    else:
        model = fakes.for_agno(source)
    numbers = iter(range(1_000_000))

    async def new() -> Talk:
        agent = of.Agent(
            model=model,
            tools=[add],
            db=database,
            session_id=str(next(numbers)),
            add_history_to_context=True,
            num_history_runs=1_000_000,
            telemetry=False,
        )

        async def say(text: str) -> str:
            return "".join([event.content or "" async for event in agent.arun(text, stream=True)])

        return say

    yield new


@asynccontextmanager
async def strands(source: Source) -> AsyncIterator[New]:
    """`stream_async` of an agent that leaves no message out; by default it keeps the last forty."""
    of = peer("strands")
    if isinstance(source, str):
        to = {"base_url": source, "api_key": "k"}
        model = peer("strands.models.openai").OpenAIModel(client_args=to, model_id="m")
    else:
        model = fakes.for_strands(source)
    tool = of.tool(add)
    whole = peer("strands.agent.conversation_manager").NullConversationManager

    async def new() -> Talk:
        agent = of.Agent(model, tools=[tool], callback_handler=None, conversation_manager=whole())

        async def say(text: str) -> str:
            stream = agent.stream_async(text)
            return "".join([event["data"] async for event in stream if "data" in event])

        return say

    yield new
