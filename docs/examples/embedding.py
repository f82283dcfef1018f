"""An agent in ten lines, here against a scripted model so that it runs anywhere."""

import anyio

import dsh_llm_openai
from dsh_llm_scripted import MockServer, text_reply
from dsh_session import AssistantMessageEvent
from dsh_spine import SpineContext, spine


async def main() -> None:
    """Mount the spine and a provider, send one message, wait until nothing runs."""
    async with MockServer([text_reply("A clean workspace.")]) as server, SpineContext() as ctx:
        ctx.plugin(spine)
        providers = {"demo": {"preset": "generic", "base_url": server.base_url}}
        ctx.plugin(dsh_llm_openai, {"providers": providers})
        await ctx.settled()
        handle = await ctx.agents.create(provider="demo", model="scripted")
        handle.agent.followup("Summarize this workspace.")
        await handle.agent.when_idle()
        for event in handle.agent.session.events:
            if isinstance(event.data, AssistantMessageEvent):
                print(event.data.message.content)


anyio.run(main)
