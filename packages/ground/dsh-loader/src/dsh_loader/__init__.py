"""Composes plugins from configuration rows, profiles and entry points."""
