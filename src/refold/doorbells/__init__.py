"""Doorbells: ways to say that work has come, in a process and between processes."""
