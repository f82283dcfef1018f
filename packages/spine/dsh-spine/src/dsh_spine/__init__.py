"""Mounts the spine of an agent stack in the right order."""

from ._spine import PARTS, SpineConfigError, SpineContext, spine

__all__ = ["PARTS", "SpineConfigError", "SpineContext", "spine"]
