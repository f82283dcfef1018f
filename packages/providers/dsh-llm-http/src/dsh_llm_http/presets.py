"""What adapters know about named providers."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

N = TypeVar("N", bound=str)


class HttpPreset(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of a provider; each can be set otherwise in the profile. A protocol adds its own."""

    name: str
    base_url: str | None = None
    base_url_env: str | None = None
    """Variable that replaces `base_url` when the profile gives none."""
    api_key_env: str | None = None
    default_effort: str | None = None
    context_window: int | None = None
    input_modalities: tuple[str, ...] | None = None


P = TypeVar("P", bound=HttpPreset)

_BY_ROUTE: Mapping[str, str] = {"deepseek-official": "deepseek"}


def preset_for(presets: Mapping[N, P], route: str, chosen: N | None) -> P:
    """The chosen preset, else the one that the route is named after, else `generic`."""
    if chosen is not None:
        return presets[chosen]
    by_name: Mapping[str, P] = {str(name): preset for name, preset in presets.items()}
    return by_name.get(_BY_ROUTE.get(route, route)) or by_name["generic"]
