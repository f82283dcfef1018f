"""Messages API adapter for Anthropic and compatible servers."""
