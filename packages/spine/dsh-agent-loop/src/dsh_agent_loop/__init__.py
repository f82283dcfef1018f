"""The default agent driver: turns, steps, requests and tool scheduling."""
