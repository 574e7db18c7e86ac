"""Tools: what a step can call."""
