"""Incremental projections over session logs."""
