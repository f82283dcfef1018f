"""The dsh command: run, chat, sessions, plugins, demo."""
