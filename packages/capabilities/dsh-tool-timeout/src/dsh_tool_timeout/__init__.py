"""Ends tool calls that outlive their declared timeout."""
