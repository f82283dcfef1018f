"""Token and cost accounting per session."""
