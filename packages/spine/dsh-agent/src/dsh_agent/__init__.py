"""The agent handle: types, events, registry, initiator scope and model selection."""
