"""Request bodies: bytes joined from fragments that are encoded once per message.

Upstream: packages/llm/llm-anthropic/src/request.ts.
"""

from collections.abc import Sequence
from operator import attrgetter

from dsh_brand import encode_json, is_blank, scrub_surrogates
from dsh_llm import GenerateOptions, LlmError, RequestMessage, ToolSchema, codes, leading_prompt
from dsh_llm_http import ModelFacts
from dsh_llm_http.identity import GrowingHistory, Grown, IdentityCache
from dsh_llm_http.wire import body_of, check_effort, encoded, encoded_number

from .call_ids import CallIds
from .fragments import NAMES, Encoder, Fragment
from .routes import MIN_BUDGET_TOKENS, OFF, Effort, Route
from .turns import Turn, closed_before, encoded_turn, turns_of

_TOOLS_KEPT = 1024
_MODELS_KEPT = 8
_odd_ids = attrgetter("odd_ids")
_MARKS = {
    "none": b"",
    "short": b',"cache_control":{"type":"ephemeral"}',
    "long": b',"cache_control":{"type":"ephemeral","ttl":"1h"}',
}


class BodyBuilder:
    """Builds the bodies of one route; equal requests give equal bytes."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._mark = _MARKS[route.cache_retention]
        self._messages: dict[str, IdentityCache[RequestMessage, Fragment]] = {}
        """By model: what may be sent back depends on it."""
        self._grown: GrowingHistory[RequestMessage] = GrowingHistory()
        self._tools: dict[int, tuple[ToolSchema, bytes]] = {}

    def build(self, options: GenerateOptions) -> bytes:
        """The body of a request.

        Raises:
            LlmError: `UNSUPPORTED_OPTION`, `UNSUPPORTED_REASONING_EFFORT` or
                `UNSUPPORTED_CONTENT`: something the route cannot express.
        """
        facts = self._route.model(options.model)
        max_tokens = options.max_tokens or facts.max_tokens or self._route.default_max_tokens
        check_effort(options, self._route, facts)
        prompt, messages = self._conversation(options, facts)
        head = [b'"model":' + encoded(options.model), b'"max_tokens":%d' % max_tokens]
        if not is_blank(prompt):
            block = encoded({"type": "text", "text": prompt})
            head.append(b'"system":[' + block[:-1] + self._mark + b"}]")
        tail: list[bytes] = []
        if options.tools:
            tools = [self._tool(tool) for tool in options.tools]
            tools[-1] = tools[-1][:-1] + self._mark + b"}"
            tail.append(b'"tools":[' + b",".join(tools) + b"]")
        tail += _thinking(options, self._route, max_tokens)
        if options.temperature is not None:
            tail.append(b'"temperature":' + encoded_number(options.temperature))
        if options.stop:
            tail.append(b'"stop_sequences":' + encoded(_checked_stop(options.stop)))
        return body_of(head, messages, [*tail, b'"stream":true'])

    def _conversation(
        self, options: GenerateOptions, facts: ModelFacts
    ) -> tuple[str, Sequence[bytes]]:
        if facts.system_prompt_in_history:
            prompt, rest = leading_prompt(options.messages, options.system, in_history=True)
            history = self._history(rest, (options.model, True))
            if history is not None:
                return prompt, history
        prompt, rest = leading_prompt(options.messages, options.system)
        # Without a prompt in it, a history always has turns.
        return prompt, self._history(rest, (options.model, False)) or []

    def _history(
        self, messages: Sequence[RequestMessage], tag: tuple[str, bool]
    ) -> Sequence[bytes] | None:
        """The encoded turns, `None` if they cannot be expressed; see `turns_of`."""
        grown = self._grown.beginning(messages, tag)
        tail = self._tail(messages, grown, tag[0]) if grown.count else None
        if tail is None:
            grown = self._grown.fresh(messages, tag)
            tail = self._tail(messages, grown, tag[0])
        return None if tail is None else [*grown.parts, *tail]

    def _tail(
        self, messages: Sequence[RequestMessage], grown: Grown[RequestMessage], model: str
    ) -> Sequence[bytes] | None:
        """The turns that may still change; what cannot joins the beginning.

        `None` if the prompts of these messages cannot be expressed, or if this beginning does not
        do: the cache mark or a substitute for a call id may have to change within it.
        """
        begun = grown.count > 0
        new = messages[grown.count :]
        fragments = self._fragments(new, model)
        odd = any(map(_odd_ids, fragments))
        turns = turns_of(fragments, begun=begun)
        if turns is None or (begun and (odd or not _has_user(turns))):
            return None
        if odd:
            return self._encoded(turns_of(self._renamed(messages, fragments, model)) or [])
        closed = closed_before(fragments)
        head = turns_of(fragments[:closed], begun=begun) if closed else []
        if head and turns[: len(head)] == head:
            grown.extend(new[:closed], [encoded_turn(turn) for turn in head])
            turns = turns[len(head) :]
        return self._encoded(turns)

    def _encoded(self, turns: Sequence[Turn]) -> Sequence[bytes]:
        encoded = [turn[0].turn if len(turn) == 1 else encoded_turn(turn) for turn in turns]
        if self._mark:
            users = [number for number, turn in enumerate(turns) if turn[0].role == "user"]
            if users:
                encoded[users[-1]] = encoded_turn(turns[users[-1]], self._mark)
        return encoded

    def _fragments(self, messages: Sequence[RequestMessage], model: str) -> list[Fragment]:
        cache = self._messages.get(model)
        if cache is None:
            if len(self._messages) >= _MODELS_KEPT:
                self._messages.clear()
            cache = self._messages[model] = IdentityCache()
        encoder = Encoder(model, self._route.unsigned_thinking)
        return cache.all(messages, lambda message: encoder.fragment(message, _as_it_is))

    def _renamed(
        self, messages: Sequence[RequestMessage], fragments: Sequence[Fragment], model: str
    ) -> Sequence[Fragment]:
        """The fragments with call ids that can be sent, which depend on all ids of the request."""
        encoder = Encoder(model, self._route.unsigned_thinking)
        sent_id = CallIds(messages).sent
        return [
            encoder.fragment(message, sent_id) if fragment.odd_ids else fragment
            for message, fragment in zip(messages, fragments, strict=True)
        ]

    def _tool(self, tool: ToolSchema) -> bytes:
        known = self._tools.get(id(tool))
        if known is not None and known[0] is tool:
            return known[1]
        NAMES.check_tool(tool.name, self._route.label)
        parameters = tool.parameters
        form: dict[str, object] = {
            "name": tool.name,
            "description": scrub_surrogates(tool.description),
            "input_schema": parameters
            if "type" in parameters
            else {"type": "object", **parameters},
        }
        if tool.defer_loading:
            form["defer_loading"] = True
        piece = encode_json(form)  # type: ignore[arg-type]  # a schema is JSON by its type
        if len(self._tools) >= _TOOLS_KEPT:
            self._tools.clear()  # schemas that changed for long; they are encoded anew
        self._tools[id(tool)] = (tool, piece)
        return piece


def _has_user(turns: Sequence[Turn]) -> bool:
    return any(turn[0].role == "user" for turn in turns)


def _as_it_is(call_id: str) -> str:
    return call_id


def _thinking(options: GenerateOptions, route: Route, max_tokens: int) -> list[bytes]:
    name = options.reasoning_effort
    if options.purpose == "session-title" and OFF in route.efforts:
        name = OFF  # a title is not worth a thought
    effort = None if name is None else route.efforts.get(name)
    if effort is None:
        return []
    if effort.thinking == "disabled":
        return [b'"thinking":{"type":"disabled"}']
    if options.temperature not in (None, 1):
        raise LlmError(
            f"temperature {options.temperature!r} cannot be asked together with the reasoning "
            f"effort {name!r}: leave one of them out",
            codes.UNSUPPORTED_OPTION,
        )
    form: dict[str, object] = {"type": effort.thinking}
    if effort.budget_tokens is not None:
        form["budget_tokens"] = _budget(effort, name, max_tokens)
    fields = [b'"thinking":' + encoded(form)]
    if effort.level is not None:
        fields.append(b'"output_config":' + encoded({"effort": effort.level}))
    return fields


def _budget(effort: Effort, name: str | None, max_tokens: int) -> int:
    budget = min(effort.budget_tokens or MIN_BUDGET_TOKENS, max_tokens - 1)
    if budget < MIN_BUDGET_TOKENS:
        raise LlmError(
            f"the reasoning effort {name!r} needs at least {MIN_BUDGET_TOKENS} tokens of thinking "
            f"within the output limit, which is {max_tokens}: raise `max_tokens` or choose another "
            "effort",
            codes.UNSUPPORTED_OPTION,
        )
    return budget


def _checked_stop(stop: Sequence[str]) -> list[str]:
    if any(is_blank(text) for text in stop):
        raise LlmError(
            f"stop {list(stop)!r} holds a blank text, which the Messages protocol refuses; "
            "take it out",
            codes.UNSUPPORTED_OPTION,
        )
    return list(stop)
