"""Subprocess runtime, the bash tool, background jobs, spill store and the sandbox seam."""
