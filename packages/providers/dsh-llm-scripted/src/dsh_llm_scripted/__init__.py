"""Scripted model and mock chat-completions HTTP server for tests."""
