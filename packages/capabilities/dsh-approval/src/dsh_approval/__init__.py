"""Asks before a tool runs: rules, answerers, durable decisions."""
