"""Session store: all sessions in one SQLite database."""
