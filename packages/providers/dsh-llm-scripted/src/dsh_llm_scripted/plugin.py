"""The plugin: a scripted model behind `ctx.llm`."""

from collections.abc import Mapping

import msgspec

from dsh_cordis import Context
from dsh_llm import LlmService

from .adapter import ScriptedAdapter
from .script import chunk_script

name = "llm-scripted"


class Needs(Context):
    """What the plugin needs."""

    llm: LlmService


def apply(ctx: Needs, config: ScriptedAdapter | Mapping[str, object]) -> None:
    """Register the adapter, given as it is or as a mapping of `script` and `providers`.

    In a mapping the script has the JSON form of `dsh_llm_scripted.script`, without raw replies.
    """
    adapter = config if isinstance(config, ScriptedAdapter) else _from_settings(config)
    ctx.llm.register_adapter(adapter.providers, adapter)


class _Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    script: tuple[object, ...] = ()
    providers: tuple[str, ...] = ("scripted",)


def _from_settings(config: Mapping[str, object] | None) -> ScriptedAdapter:
    settings = msgspec.convert(config or {}, _Settings)
    return ScriptedAdapter(chunk_script(settings.script), routes=settings.providers)
