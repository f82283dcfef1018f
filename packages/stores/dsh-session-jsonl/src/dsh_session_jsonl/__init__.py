"""Session store: one JSON Lines file per session, plain or zstd."""
