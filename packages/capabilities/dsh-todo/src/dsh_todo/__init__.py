"""The todo list of an agent: tool, events and state."""
