"""Chat-completions adapter for DeepSeek, OpenAI and compatible servers."""
