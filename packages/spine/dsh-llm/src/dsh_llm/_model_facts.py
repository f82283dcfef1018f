"""Checks what adapters say about models: wrong facts fail where they come from."""

from collections.abc import Iterable, Sequence
from typing import NoReturn

from dsh_brand import MAX_SAFE_INT, replace
from dsh_llm import codes
from dsh_llm.failures import LlmError
from dsh_llm.models import (
    LlmDiscoveredModel,
    LlmModelContext,
    LlmModelInfo,
    LlmModelReasoningInfo,
    LlmResolvedModelInfo,
)
from dsh_llm.request import AdapterDefaults, LlmCallConfig


def checked_catalog(provider: str, models: Iterable[LlmModelInfo]) -> list[LlmModelInfo]:
    """Copies of the listed models.

    Raises:
        LlmError: An entry is wrong (`INVALID_CATALOG`).
    """
    seen: set[str] = set()
    result: list[LlmModelInfo] = []
    for model in models:
        described = model.description is None or isinstance(model.description, str)
        if model.provider != provider or not model.id or not model.name or not described:
            _refuse(codes.INVALID_CATALOG, f"route {provider!r} lists the wrong entry {model!r}")
        if model.id in seen:
            _refuse(codes.INVALID_CATALOG, f"route {provider!r} lists {model.id!r} twice")
        seen.add(model.id)
        result.append(replace(model, extra=None))
    return result


def checked_model(provider: str, model: str, info: LlmResolvedModelInfo) -> LlmResolvedModelInfo:
    """The facts about one model, without fields that this build does not know.

    Raises:
        LlmError: A fact is wrong; the code tells which.
    """
    what = f"model {model!r} of route {provider!r}"
    if info.provider != provider or info.id != model or not info.name:
        _refuse(codes.INVALID_MODEL_INFO, f"{what} resolved to {info.provider!r}/{info.id!r}")
    if info.system_prompt_update not in (None, "in-history"):
        _refuse(codes.INVALID_MODEL_INFO, f"{what}: prompt update {info.system_prompt_update!r}")
    if info.tool_update not in (None, "addition-only", "in-history"):
        _refuse(codes.INVALID_MODEL_INFO, f"{what}: tool update {info.tool_update!r}")
    limit = info.default_max_tokens
    if limit is not None and not _is_count(limit):
        _refuse(codes.INVALID_MODEL_MAX_TOKENS, f"{what}: default output limit {limit!r}")
    context = _checked_context(what, info.context)
    reasoning = _checked_reasoning(what, info.reasoning)
    if context is info.context and reasoning is info.reasoning and info.extra is None:
        return info
    return replace(info, context=context, reasoning=reasoning, extra=None)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 < value <= MAX_SAFE_INT


def _checked_context(what: str, context: LlmModelContext | None) -> LlmModelContext | None:
    if context is None:
        return None
    if not _is_count(context.context_window):
        _refuse(codes.INVALID_MODEL_CONTEXT, f"{what}: window {context.context_window!r}")
    return context if context.extra is None else replace(context, extra=None)


def _checked_reasoning(
    what: str, reasoning: LlmModelReasoningInfo | None
) -> LlmModelReasoningInfo | None:
    if reasoning is None:
        return None
    code = codes.INVALID_MODEL_REASONING
    ids = [effort.id for effort in reasoning.efforts]
    if not ids or not all(ids) or len(set(ids)) != len(ids):
        _refuse(code, f"{what}: efforts {ids!r} are not distinct non-empty ids")
    if not all(effort.name for effort in reasoning.efforts):
        _refuse(code, f"{what}: an effort has no name")
    if reasoning.default_effort is not None and reasoning.default_effort not in ids:
        _refuse(code, f"{what}: default effort {reasoning.default_effort!r} is none of {ids!r}")
    if reasoning.extra is None and all(effort.extra is None for effort in reasoning.efforts):
        return reasoning
    efforts = tuple(replace(effort, extra=None) for effort in reasoning.efforts)
    return replace(reasoning, efforts=efforts, extra=None)


def filled_config(
    config: LlmCallConfig, info: LlmResolvedModelInfo
) -> tuple[LlmCallConfig, AdapterDefaults | None]:
    """The config with the adapter's defaults in it, and which ones they are.

    Returns:
        The very object and `None` when nothing was filled in.

    Raises:
        LlmError: The model does not offer the effort (`UNSUPPORTED_REASONING_EFFORT`).
    """
    efforts = () if info.reasoning is None else info.reasoning.efforts
    effort = config.reasoning_effort
    if effort is not None and all(offered.id != effort for offered in efforts):
        offers = ", ".join(repr(offered.id) for offered in efforts) or "none"
        raise LlmError(
            f"model {config.model!r} has no reasoning effort {effort!r}; it offers {offers}",
            codes.UNSUPPORTED_REASONING_EFFORT,
        )
    changes: dict[str, object] = {}
    if config.max_tokens is None and info.default_max_tokens is not None:
        changes["max_tokens"] = info.default_max_tokens
    if effort is None and info.reasoning is not None and info.reasoning.default_effort is not None:
        changes["reasoning_effort"] = info.reasoning.default_effort
    if not changes:
        return config, None
    marks = AdapterDefaults(
        reasoning_effort="reasoning_effort" in changes or None,
        max_tokens="max_tokens" in changes or None,
    )
    return replace(config, **changes), marks


def usable_discoveries(models: Sequence[LlmDiscoveredModel]) -> list[LlmDiscoveredModel]:
    """Copies of the models that have an id of their own."""
    result: dict[str, LlmDiscoveredModel] = {}
    for model in models:
        if isinstance(model.id, str) and model.id:
            result.setdefault(model.id, replace(model, extra=None))
    return list(result.values())


def _refuse(code: str, problem: str) -> NoReturn:
    raise LlmError(f"{problem}: the adapter of that route has to be corrected", code)
