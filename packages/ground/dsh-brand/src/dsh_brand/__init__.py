"""Branded ids, the base error, secrets and lossless JSON for DeepSeek Harness packages."""
