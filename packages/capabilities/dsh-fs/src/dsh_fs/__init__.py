"""File service and the read, write, edit and glob tools."""
