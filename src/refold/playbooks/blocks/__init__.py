"""`parallel`, `while`, `until` and `if`, compiled to steps and arcs."""
