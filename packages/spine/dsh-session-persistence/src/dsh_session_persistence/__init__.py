"""The seam between session logs and the stores that keep them."""
