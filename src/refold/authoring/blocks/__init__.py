"""Blocks of a playbook (`parallel`, `while`, `until`, `if`), written as steps and arcs."""
