"""Append-only session log: events, surface, derived history and recovery."""
