"""Write the dialect tables of docs/providers.md: `gen_providers.py [--check]`.

Each preset sends one request to a mock server on loopback, and what arrives there is what the table
says. Nothing is read out of the presets but the address and the name of the key's variable.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from dsh_llm import (
    GenerateOptions,
    ModelSource,
    ReasoningBlock,
    TextBlock,
    ToolSchema,
    create_assistant_message,
    create_system_message,
    create_user_message,
)
from dsh_llm_anthropic import AnthropicAdapter
from dsh_llm_anthropic.presets import PRESETS as MESSAGES_PRESETS
from dsh_llm_openai import OpenAiAdapter
from dsh_llm_openai.presets import PRESETS as CHAT_PRESETS
from dsh_llm_scripted import MockServer, RecordedRequest, Speech

PAGE = Path(__file__).resolve().parents[1] / "docs" / "providers.md"
KEY = "the-key"
CHAT_HEAD = (
    "preset",
    "address",
    "key",
    "prompt as",
    "output limit",
    "reasoning goes back",
    "token counts",
    "thinking",
    "efforts",
    "connections",
)
MESSAGES_HEAD = (
    "preset",
    "address",
    "key",
    "output limit by default",
    "unsigned reasoning",
    "thinking",
    "efforts",
    "cache marks",
    "later prompts",
)

Row = Sequence[str]
Adapter = OpenAiAdapter | AnthropicAdapter


def _code(text: str) -> str:
    return f"`{text}`" if text else "-"


async def _lookup(reference: str) -> str | None:
    return KEY


async def _sent(adapter: Adapter, server: MockServer, effort: str | None) -> RecordedRequest:
    """One request with all that a dialect may say differently."""
    source = ModelSource("x", "m")
    options = GenerateOptions(
        provider="x",
        model="m",
        messages=[
            create_system_message("prompt"),
            create_user_message("question"),
            create_assistant_message([ReasoningBlock("thought"), TextBlock("answer")], source),
            create_system_message("later prompt"),
            create_user_message("more"),
        ],
        tools=[ToolSchema("t", "d", {})],
        max_tokens=5000,
        reasoning_effort=effort,
    )
    async for _ in adapter.stream(options):
        pass
    return server.requests[-1]


async def _requests(
    adapter_class: type[OpenAiAdapter] | type[AnthropicAdapter], preset: str
) -> tuple[Adapter, RecordedRequest, Sequence[str]]:
    """What a preset sends when it shall think as hard as it can, and the efforts it offers."""
    async with MockServer([Speech(text="ok")]) as server:
        profile = {"x": {"preset": preset, "base_url": server.base_url}}
        adapter = adapter_class(profile, credentials=_lookup)
        info = await adapter.resolve_model("x", "m")
        efforts = [] if info.reasoning is None else [each.id for each in info.reasoning.efforts]
        request = await _sent(adapter, server, efforts[-1] if efforts else None)
        await adapter.aclose()
        default = None if info.reasoning is None else info.reasoning.default_effort
        return adapter, request, [f"**{e}**" if e == default else e for e in efforts]


def _key(request: RecordedRequest, variable: str | None) -> str:
    if request.headers.get("x-api-key") == KEY:
        return f"{_code(variable or '')} as `x-api-key`"
    return f"{_code(variable or '')} as bearer" if "authorization" in request.headers else "none"


def _thinking(body: Mapping[str, Any]) -> str:
    names = ("thinking", "reasoning_effort", "enable_thinking", "output_config")
    shown = [f"{name}: {_plain(body[name])}" for name in names if name in body]
    return _code(", ".join(shown))


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_plain(item)}" for key, item in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


async def _chat_row(name: str) -> Row:
    preset = next(preset for key, preset in CHAT_PRESETS.items() if key == name)
    _, request, efforts = await _requests(OpenAiAdapter, name)
    body: Mapping[str, Any] = request.body
    answer = next(m for m in body["messages"] if m["role"] == "assistant")
    limit = next(key for key, value in body.items() if value == 5000)
    return (
        _code(name),
        preset.base_url or "yours",
        _key(request, preset.api_key_env),
        _code(body["messages"][0]["role"]),
        _code(limit),
        _code(next((key for key, value in answer.items() if value == "thought"), "")),
        "asked for" if "stream_options" in body else "not asked for",
        _thinking(body),
        ", ".join(efforts) or "-",
        "kept" if request.headers["connection"] == "keep-alive" else "used once",
    )


async def _messages_row(name: str) -> Row:
    preset = next(preset for key, preset in MESSAGES_PRESETS.items() if key == name)
    adapter, request, efforts = await _requests(AnthropicAdapter, name)
    body: Mapping[str, Any] = request.body
    blocks = [block for turn in body["messages"] for block in turn["content"]]
    info = await adapter.resolve_model("x", "m")
    marks = [block for block in blocks if "cache_control" in block]
    return (
        _code(name),
        preset.base_url or "yours",
        _key(request, preset.api_key_env),
        str(info.default_max_tokens),
        "sent" if any(block["type"] == "thinking" for block in blocks) else "left out",
        _thinking(body),
        ", ".join(efforts) or "-",
        _code(_plain(marks[0]["cache_control"])) if marks else "-",
        "in history" if any(turn["role"] == "system" for turn in body["messages"]) else "lead",
    )


def _table(head: Row, rows: Sequence[Row]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


async def tables() -> Mapping[str, str]:
    """The generated regions by name."""
    return {
        "chat-completions": _table(CHAT_HEAD, [await _chat_row(name) for name in CHAT_PRESETS]),
        "messages": _table(MESSAGES_HEAD, [await _messages_row(name) for name in MESSAGES_PRESETS]),
    }


def rendered(page: str, regions: Mapping[str, str]) -> str:
    """The page with its generated regions replaced."""
    for name, text in regions.items():
        begin, end = f"<!-- dialects:begin {name} -->\n", f"\n<!-- dialects:end {name} -->"
        before, _, rest = page.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"{PAGE} has no region {name!r}")
        page = before + begin + text + end + after
    return page


def main() -> None:
    """Write the page, or say that it is stale."""
    page = PAGE.read_text(encoding="utf-8")
    fresh = rendered(page, anyio.run(tables))
    if "--check" in sys.argv:
        if page != fresh:
            raise SystemExit(f"{PAGE} is stale: run scripts/gen_providers.py")
    elif page != fresh:
        PAGE.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
