"""HTTP, server-sent events and failure classes shared by the model adapters."""
