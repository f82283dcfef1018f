"""System prompt assembly from sections, contexts, variables and tool schemas."""
