"""Plugin kernel after Cordis: contexts, fibers, effects, services, typed events and scopes."""
