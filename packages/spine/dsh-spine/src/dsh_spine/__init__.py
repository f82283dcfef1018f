"""Mounts the spine of an agent stack in the right order."""
