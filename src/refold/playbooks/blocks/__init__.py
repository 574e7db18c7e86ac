"""Blocks (`parallel`, `while`, `until`, `if`), which are compiled to steps and arcs."""
