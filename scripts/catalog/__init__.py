"""The generated catalog: what each package offers, read from its sources."""
