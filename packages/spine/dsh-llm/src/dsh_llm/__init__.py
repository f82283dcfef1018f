"""Typed streaming model layer: messages, chunks, adapters, failures and request derivation."""
